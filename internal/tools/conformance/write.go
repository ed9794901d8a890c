package conformance

import (
	"context"
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writtenIn is the namespace of the created objects.
const writtenIn = "default"

func writeChecks() []check {
	return []check{
		{id: "write/dry-run", expected: "a create with dryRun=All answers like a create and makes nothing",
			reason: "KEP-576: kubectl apply --dry-run=server and diff; a server that takes no notice of it makes the trial real", run: written("dry-run", dryRun), changes: true},
		{id: "write/create", expected: "what is created can be read, and created once only: then 409 AlreadyExists",
			reason: "clients take 409 for somebody else's object and look at it", run: written("create", createTwice), changes: true},
		{id: "write/delete", expected: "what is deleted is gone, and to delete it again is 404",
			reason: "clients wait for the 404", run: written("delete", deleteTwice), changes: true},
	}
}

// written returns a check for resources that support create and delete, if Config.Write is set. Each check uses a
// different object because checks run concurrently.
func written(name string, f func(context.Context, *examination, metav1.APIResource, object) verdict) func(context.Context, *examination) verdict {
	return func(ctx context.Context, x *examination) verdict {
		if !x.cfg.Write {
			return notApplicable("it creates and deletes an object: --write")
		}
		return x.worst("create", func(r metav1.APIResource) verdict {
			if !can(r, "delete") || !can(r, "get") {
				return notApplicable("what is created cannot be read and deleted")
			}
			o := object{APIVersion: x.gv.String(), Kind: r.Kind, Metadata: metav1.ObjectMeta{Name: "portico-conformance-" + name}}
			if r.Namespaced {
				o.Metadata.Namespace = writtenIn
			}
			defer func() {
				gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.cfg.Timeout)
				defer cancel()
				x.ask.do(gone, question{method: http.MethodDelete, path: x.home(r, o)})
			}()
			return f(ctx, x, r, o)
		})
	}
}

// create creates an object that has only a name.
func (x *examination) create(ctx context.Context, r metav1.APIResource, o object, pairs ...string) answer {
	body, err := json.Marshal(o)
	if err != nil {
		return answer{err: err}
	}
	return x.ask.do(ctx, question{method: http.MethodPost, path: x.path(r, o.Metadata.Namespace), query: query(pairs...), body: body})
}

// unmade returns a verdict if an object was not created, and otherwise nil.
func unmade(a answer) *verdict {
	var v verdict
	switch {
	case a.is(http.StatusCreated):
		return nil
	case denied(a):
		v = notApplicable("the caller may not: %s", a)
	case a.is(http.StatusUnprocessableEntity) || a.is(http.StatusBadRequest):
		v = notApplicable("an object that is only a name is not valid: %s", a)
	default:
		v = failed("%s", a)
	}
	return &v
}

func dryRun(ctx context.Context, x *examination, r metav1.APIResource, o object) verdict {
	if none := unmade(x.create(ctx, r, o, "dryRun", "All")); none != nil {
		return *none
	}
	if a := x.ask.get(ctx, x.home(r, o)); !a.is(http.StatusNotFound) {
		return failed("after the dry run, %s", a)
	}
	return ok
}

func createTwice(ctx context.Context, x *examination, r metav1.APIResource, o object) verdict {
	if none := unmade(x.create(ctx, r, o)); none != nil {
		return *none
	}
	var got object
	if err := x.ask.get(ctx, x.home(r, o)).into(&got); err != nil {
		return failed("after its creation, %v", err)
	}
	if got.key() != o.key() {
		return failed("what was created is read as %s", got.key())
	}
	return x.create(ctx, r, o).refusal(http.StatusConflict)
}

func deleteTwice(ctx context.Context, x *examination, r metav1.APIResource, o object) verdict {
	if none := unmade(x.create(ctx, r, o)); none != nil {
		return notApplicable("nothing could be created: %s", none.detail)
	}
	away := question{method: http.MethodDelete, path: x.home(r, o)}
	if a := x.ask.do(ctx, away); !a.is(http.StatusOK) && !a.is(http.StatusAccepted) {
		return failed("%s", a)
	}
	return x.ask.do(ctx, away).refusal(http.StatusNotFound)
}
