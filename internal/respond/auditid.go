package respond

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CauseAuditID is the type of the cause whose message is the audit id of the request.
const CauseAuditID metav1.CauseType = "AuditID"

// AddAuditID adds to a Status the audit id of its request, so that whoever has only the error, such as a client that logs
// errors and not headers, can find the request in the logs and audit events of all servers on its way. It does nothing
// without an id or without details.
//
// The id is a cause, after those that say what is wrong. details.uid would be shorter, and wrong: there clients find the UID of the
// object that details name, here the APIService. kubectl prints causes for the reason Invalid only, which no error about a backend
// has, so that its message stays as it is.
func AddAuditID(s *metav1.Status, id string) {
	if id != "" && s.Details != nil {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: CauseAuditID, Message: id})
	}
}
