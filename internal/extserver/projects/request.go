package projects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/clients/apiclient"
	"portico.dev/pkg/extension"
)

const (
	maxDisplayName = 256
	maxDescription = 4096
)

// Annotations of the namespaces that project requests create. With the group project.openshift.io, the first three have the
// prefix openshift.io/.
//
//reference:annotations Annotations of the namespaces of projects
const (
	// requesterAnnotation is the name of the user who requested the project.
	requesterAnnotation = "portico.dev/requester"
	// displayNameAnnotation is the project's display name.
	displayNameAnnotation = "portico.dev/display-name"
	// descriptionAnnotation is the project's description.
	descriptionAnnotation = "portico.dev/description"
	// requestAnnotation identifies the request that created the namespace, among all requests of all callers.
	requestAnnotation = "portico.dev/project-request"
)

// requests is the provider of project requests.
type requests struct{ *Projects }

// List returns an empty list, because requests are not stored.
func (requests) List(context.Context, extension.Query) ([]ProjectRequest, error) { return nil, nil }

// Create creates the namespace and makes the caller its admin.
func (r requests) Create(ctx context.Context, q extension.Query, request ProjectRequest) (ProjectRequest, error) {
	if err := r.acceptable(q.User, &request); err != nil {
		return ProjectRequest{}, err
	}
	if r.config.MaxPerUser > 0 {
		done, err := r.users.Lock(ctx, q.User.GetName())
		if err != nil {
			return ProjectRequest{}, err
		}
		defer done()
		if err := r.withinBound(ctx, q.User, request.Name); err != nil {
			return ProjectRequest{}, err
		}
	}
	annotations := r.annotations(q.User, request)
	namespace, err := r.namespaces.create(ctx, request.Name, annotations)
	if apiclient.HasReason(err, metav1.StatusReasonAlreadyExists) {
		return ProjectRequest{}, apierrors.NewAlreadyExists(r.resource("projects"), request.Name)
	}
	if err == nil {
		err = r.makeAdmin(ctx, q.User, namespace)
	}
	if err != nil {
		return ProjectRequest{}, errors.Join(err, r.undo(ctx, request.Name, annotations[requestAnnotation]))
	}
	return ProjectRequest{
		ObjectMeta:  metav1.ObjectMeta{Name: namespace.Name, UID: namespace.UID, CreationTimestamp: namespace.CreationTimestamp},
		DisplayName: request.DisplayName, Description: request.Description,
	}, nil
}

func (r requests) acceptable(who user.Info, request *ProjectRequest) error {
	if who.GetName() == "" || who.GetName() == user.Anonymous || slices.Contains(who.GetGroups(), user.AllUnauthenticated) {
		return apierrors.NewForbidden(r.resource("projectrequests"), request.Name, errors.New("a project needs an owner, and nobody knows who asks"))
	}
	var problems field.ErrorList
	path := field.NewPath("metadata", "name")
	for _, problem := range validation.IsDNS1123Label(request.Name) {
		problems = append(problems, field.Invalid(path, request.Name, problem))
	}
	reserved := slices.ContainsFunc(r.config.ReservedPrefixes, func(prefix string) bool { return strings.HasPrefix(request.Name, prefix) })
	if reserved || request.Name == corev1.NamespaceDefault {
		problems = append(problems, field.Forbidden(path, "the name is reserved for the cluster's own namespaces"))
	}
	if len(request.DisplayName) > maxDisplayName {
		problems = append(problems, field.TooLong(field.NewPath("displayName"), nil, maxDisplayName))
	}
	if len(request.Description) > maxDescription {
		problems = append(problems, field.TooLong(field.NewPath("description"), nil, maxDescription))
	}
	if len(request.Labels)+len(request.Annotations) > 0 {
		problems = append(problems, field.Forbidden(field.NewPath("metadata"), "labels and annotations are not taken over, since those of a namespace set policies"))
	}
	if len(problems) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: r.config.Group, Kind: "ProjectRequest"}, request.Name, problems)
	}
	return nil
}

// withinBound checks MaxPerUser against the existing projects of the user. The caller holds the user's lock.
func (r requests) withinBound(ctx context.Context, who user.Info, name string) error {
	all, err := r.namespaces.all(ctx, time.Now())
	if err != nil {
		return err
	}
	count := 0
	for i := range all {
		if all[i].Annotations[r.notes.requester] == who.GetName() {
			count++
		}
	}
	if count >= r.config.MaxPerUser {
		return apierrors.NewForbidden(r.resource("projectrequests"), name,
			fmt.Errorf("user %q has asked for %d projects, and %d is the limit; delete one first", who.GetName(), count, r.config.MaxPerUser))
	}
	return nil
}

// undo deletes the namespace if this request has created it, which is also possible if the response was lost. A namespace
// without an owner must not occupy the name. Namespaces of other requests are not deleted.
func (r requests) undo(ctx context.Context, name, request string) error {
	ctx = context.WithoutCancel(ctx) // the client may have disconnected
	n, err := r.namespaces.get(ctx, name)
	switch {
	case errors.Is(err, extension.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("undo: %w", err)
	case n.Annotations[requestAnnotation] != request:
		return nil
	}
	if err := r.namespaces.delete(ctx, name, n.UID, nil); err != nil {
		return fmt.Errorf("undo: delete namespace: %w", err)
	}
	return nil
}

func (r requests) annotations(who user.Info, request ProjectRequest) map[string]string {
	out := map[string]string{r.notes.requester: who.GetName(), requestAnnotation: uuid.NewString()}
	if request.DisplayName != "" {
		out[r.notes.displayName] = request.DisplayName
	}
	if request.Description != "" {
		out[r.notes.description] = request.Description
	}
	return out
}

// makeAdmin binds the configured roles. The binding contains only the user and no groups, because other members of a group
// must not become owners.
func (r requests) makeAdmin(ctx context.Context, who user.Info, namespace *corev1.Namespace) error {
	path := "/apis/" + rbacv1.SchemeGroupVersion.String() + "/namespaces/" + namespace.Name + "/rolebindings"
	for _, role := range r.config.Roles {
		binding := rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: "project-" + role, Namespace: namespace.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who.GetName()}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
		if err := r.config.Client.Create(ctx, path, binding, nil); err != nil {
			return fmt.Errorf("make %q %s of namespace %s: %w", who.GetName(), role, namespace.Name, err)
		}
	}
	return nil
}
