package respond

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CauseAuditID is the type of the cause that contains the audit id of the request.
const CauseAuditID metav1.CauseType = "AuditID"

// AddAuditID adds the audit id of a request to its Status. So a client that logs only the error and not the headers
// can find the request in the logs and audit events of all servers on its path. It does nothing without an id or
// without details.
//
// The id is the last cause. It is not in details.uid, where clients expect the UID of the object in details, in this
// case the APIService. kubectl prints causes only for the reason Invalid, which errors about backends do not have, so
// its messages do not change.
func AddAuditID(s *metav1.Status, id string) {
	if id != "" && s.Details != nil {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: CauseAuditID, Message: id})
	}
}
