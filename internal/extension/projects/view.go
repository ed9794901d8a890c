package projects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/apiclient"
	"portico.dev/internal/extension"
)

// view is the provider of projects.
type view struct{ *Projects }

// List shows the namespaces that q.User may get. Who may list namespaces sees all of them at the price of one review;
// for anybody else each namespace is a review.
func (v view) List(ctx context.Context, q extension.Query) ([]Project, error) {
	everything, err := v.reviews.remembered(ctx, q.User, "list", "")
	if err != nil {
		return nil, err
	}
	all, err := v.namespaces.all(ctx, time.Now().Add(-shareList))
	if err != nil {
		return nil, err
	}
	visible := make([]bool, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentReviews)
	for i := range all {
		if everything {
			visible[i] = true
			continue
		}
		group.Go(func() (err error) {
			visible[i], err = v.reviews.remembered(ctx, q.User, "get", all[i].Name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []Project
	for i := range all {
		if visible[i] {
			out = append(out, projectOf(&all[i]))
		}
	}
	return out, nil
}

// Get shows one namespace. One that the caller may not get is not there.
func (v view) Get(ctx context.Context, q extension.Query) (Project, error) {
	for _, question := range []struct{ verb, namespace string }{{"get", q.Name}, {"list", ""}} {
		allowed, err := v.reviews.remembered(ctx, q.User, question.verb, question.namespace)
		if err != nil {
			return Project{}, err
		}
		if allowed {
			n, err := v.namespaces.get(ctx, q.Name)
			if err != nil {
				return Project{}, err
			}
			return projectOf(n), nil
		}
	}
	return Project{}, extension.ErrNotFound
}

// Delete deletes the namespace for a caller who may delete it themselves.
func (v view) Delete(ctx context.Context, q extension.Query) (Project, error) {
	project, err := v.Get(ctx, q)
	if err != nil {
		return Project{}, err
	}
	allowed, err := v.reviews.may(ctx, q.User, "delete", q.Name)
	switch {
	case err != nil:
		return Project{}, err
	case !allowed:
		return Project{}, apierrors.NewForbidden(v.resource("projects"), q.Name,
			fmt.Errorf("user %q may not delete namespace %q", q.User.GetName(), q.Name))
	}
	err = v.namespaces.delete(ctx, q.Name, project.UID, q.Deletion)
	switch {
	case apiclient.HasReason(err, metav1.StatusReasonNotFound):
		return Project{}, extension.ErrNotFound
	case apiclient.HasReason(err, metav1.StatusReasonConflict):
		return Project{}, apierrors.NewConflict(v.resource("projects"), q.Name, errors.New("it is being deleted, or is another one by now"))
	case err != nil:
		return Project{}, fmt.Errorf("delete namespace: %w", err)
	}
	// What is left of it has contents that must go first.
	n, err := v.namespaces.get(ctx, q.Name)
	switch {
	case errors.Is(err, extension.ErrNotFound):
		return project, nil
	case err != nil:
		return Project{}, err
	case n.UID != project.UID:
		return project, nil
	}
	return projectOf(n), nil
}

func (p *Projects) resource(name string) schema.GroupResource {
	return schema.GroupResource{Group: p.config.Group, Resource: name}
}
