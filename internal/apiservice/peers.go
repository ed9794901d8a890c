package apiservice

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Peers is how the replicas of this server tell each other what they see.
type Peers interface {
	// Say publishes a value in place of what this replica said before, for as long as it lives. It must not block, and
	// must not write what was said already.
	Say(value []byte)
	// Hear returns what each of the other replicas that are alive said last, empty for those that said nothing yet, and
	// whether this replica is the one that writes for all. No two think so of themselves for long, but for a moment they
	// may: every write has a resourceVersion for a precondition.
	Hear() (others map[string][]byte, leads bool)
	// Changed returns a channel that is closed when Hear next returns something else.
	Changed() <-chan struct{}
}

// opinion is what one replica thinks of one APIService.
type opinion struct {
	// UID and Service are what it thinks so of. An APIService that was made anew or points elsewhere by now is not it.
	UID     types.UID                         `json:"uid"`
	Service string                            `json:"service"`
	Status  apiregistrationv1.ConditionStatus `json:"status"`
	// Reason and Message say why it is not available.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// opinionOf is what a route says to other replicas; false when it says nothing: what is local is so everywhere, and a
// backend that was not heard of yet may be well.
func opinionOf(r *Route) (opinion, bool) {
	if r.Local || r.UID == "" || r.Condition.Reason == notChecked {
		return opinion{}, false
	}
	o := opinion{UID: r.UID, Service: servicePlace(r.Service), Status: r.Condition.Status}
	if !r.Available() {
		o.Reason, o.Message = r.Condition.Reason, r.Condition.Message
	}
	return o, true
}

// isOf reports whether an opinion is of what a route is about.
func (o opinion) isOf(r *Route) bool { return o.UID == r.UID && o.Service == servicePlace(r.Service) }

func servicePlace(ref *apiregistrationv1.ServiceReference) string {
	if ref == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s:%d", ref.Namespace, ref.Name, portOf(ref))
}

// maxSaying is the most that is said. etcd takes a little more in one request.
const maxSaying = 1 << 20

// saying is a replica's opinions as others read them, by APIService. With so many unavailable that it does not fit,
// reasons have to do without messages.
func saying(t *Table) ([]byte, error) {
	opinions := make(map[string]opinion)
	for _, r := range t.Routes() {
		if o, ok := opinionOf(r); ok {
			opinions[r.Name] = o
		}
	}
	text, err := json.Marshal(opinions) // sorts by name: the same opinions are the same bytes
	if err != nil || len(text) <= maxSaying {
		return text, err
	}
	for name, o := range opinions {
		o.Message = ""
		opinions[name] = o
	}
	return json.Marshal(opinions)
}

// understand is the reverse of saying. A replica that said nothing yet has no opinions.
func understand(text []byte) (map[string]opinion, error) {
	opinions := make(map[string]opinion)
	if len(text) == 0 {
		return opinions, nil
	}
	if err := json.Unmarshal(text, &opinions); err != nil {
		return nil, fmt.Errorf("what another replica says does not parse: %w", err)
	}
	return opinions, nil
}
