package debts

import (
	"net/http"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/respond"
)

// Entries are the open debts with their states, oldest first.
func (p *Payer) Entries() []Entry {
	out := []Entry{}
	for _, d := range p.cfg.Ledger.All() {
		standing := p.cfg.Standing(d.APIService)
		e := Entry{Debt: d, State: Waiting, Message: standing.Reason}
		switch {
		case !standing.Registered:
			e.State, e.Message = Orphaned, "the APIService does not exist; register it anew, or forget the debt"
		case standing.Due:
			e.State, e.Message = Paying, p.cfg.Ledger.troubleOf(d.APIService)
		}
		out = append(out, e)
	}
	return out
}

// ServeList answers with the open debts.
func (p *Payer) ServeList(w http.ResponseWriter, _ *http.Request) {
	respond.JSON(w, http.StatusOK, List{Debts: p.Entries()})
}

var debtResource = schema.GroupResource{Resource: "debts"}

// ServeForget drops one debt. Whoever may do that answers for what is left at the backend.
func (p *Payer) ServeForget(w http.ResponseWriter, r *http.Request, id string) {
	d, ok := p.cfg.Ledger.Lookup(id)
	if !ok {
		respond.Error(w, r, apierrors.NewNotFound(debtResource, id))
		return
	}
	if err := p.cfg.Ledger.Forget(r.Context(), id); err != nil {
		respond.Error(w, r, apierrors.NewInternalError(err))
		return
	}
	p.log.Warn("cleanup debt forgotten without payment", zap.String("namespace", d.Namespace),
		zap.String("groupVersion", d.GroupVersion), zap.String("apiservice", d.APIService), zap.String("id", id))
	respond.JSON(w, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusOK,
		Message: "the debt of namespace " + d.Namespace + " at APIService " + d.APIService + " is forgotten: what is left there stays",
	})
}
