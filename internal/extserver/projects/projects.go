package projects

import (
	"context"
	"errors"
	"fmt"
	"portico.dev/internal/run"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico.dev/internal/clients/apiclient"
	"portico.dev/pkg/extension"
)

// API groups that can contain projects.
const (
	Group          = "project.portico.dev"
	OpenShiftGroup = "project.openshift.io"
)

// Config configures Projects.
type Config struct {
	// Client is the client for the front door. Its user needs permission to get, list, create and delete namespaces, to
	// create subjectaccessreviews and rolebindings, and to bind Roles. Required.
	Client *apiclient.Client
	// Group is the API group of projects: Group (default), or OpenShiftGroup for OpenShift's clients.
	Group string
	// Roles are the ClusterRoles that the requester of a project is bound to in it. Default: admin.
	Roles []string
	// ReservedPrefixes are prefixes that names of requested projects must not have. Default: kube-.
	ReservedPrefixes []string
	// MaxPerUser limits the number of existing projects that one user has requested. Default: no limit. Replicas do not
	// coordinate, so simultaneous requests to several of them may exceed the limit.
	MaxPerUser int
	// PollInterval is the interval at which watches look for changes. Default: 15 s.
	PollInterval time.Duration
	// ReviewAge is the maximum age of a cached authorization decision. Default: 10 s.
	ReviewAge time.Duration
}

// Projects provides the resources projects and projectrequests.
type Projects struct {
	config     Config
	notes      notes
	namespaces *namespaces
	reviews    *reviews
	users      *run.KeyedMutex[string] // serializes the requests of a user, so that they can be counted
}

// New returns a Projects. It does no I/O.
func New(c Config) (*Projects, error) {
	if c.Client == nil {
		return nil, errors.New("projects: a client of the front door is required")
	}
	p := &Projects{users: run.NewKeyedMutex[string]()}
	switch c.Group {
	case "", Group:
		c.Group = Group
		p.notes = notes{requesterAnnotation, displayNameAnnotation, descriptionAnnotation}
	case OpenShiftGroup:
		p.notes = notes{"openshift.io/requester", "openshift.io/display-name", "openshift.io/description"}
	default:
		return nil, fmt.Errorf("projects: group %q: want %s or %s", c.Group, Group, OpenShiftGroup)
	}
	if len(c.Roles) == 0 {
		c.Roles = []string{"admin"}
	}
	for _, role := range c.Roles {
		if problems := validation.IsDNS1123Subdomain(role); len(problems) > 0 {
			return nil, fmt.Errorf("projects: role %q: %s", role, problems[0])
		}
	}
	if c.ReservedPrefixes == nil {
		c.ReservedPrefixes = []string{"kube-"}
	}
	if c.PollInterval <= 0 {
		c.PollInterval = 15 * time.Second
	}
	if c.ReviewAge <= 0 {
		c.ReviewAge = 10 * time.Second
	}
	p.config = c
	p.namespaces = newNamespaces(c.Client)
	p.reviews = newReviews(c.Client, c.ReviewAge)
	return p, nil
}

// Resources returns projects and projectrequests.
func (p *Projects) Resources() []extension.Resource {
	return []extension.Resource{
		extension.Of(p.definition(), view{p}),
		extension.Of(p.requestDefinition(), requests{p}),
	}
}

// Source returns a source that reports errors of listing namespaces.
func (p *Projects) Source() extension.Source {
	return extension.Source{Name: "namespaces", LastError: p.namespaces.LastError}
}

// Run closes idle connections when ctx ends. It does nothing else.
func (p *Projects) Run(ctx context.Context) error {
	<-ctx.Done()
	p.config.Client.Close()
	return nil
}

// Project is a namespace that the caller may get.
type Project struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// Spec mirrors the spec of a namespace.
type Spec struct {
	Finalizers []corev1.FinalizerName `json:"finalizers,omitempty" description:"What must be cleaned up before the project is gone."`
}

// Status mirrors the status of a namespace.
type Status struct {
	Phase corev1.NamespacePhase `json:"phase,omitempty" description:"Active or Terminating."`
}

// ProjectRequest requests a project. It is not stored.
type ProjectRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	DisplayName string `json:"displayName,omitempty" description:"A name for people."`
	Description string `json:"description,omitempty" description:"What the project is for."`
}

// notes are the annotations for the fields of a request.
type notes struct{ requester, displayName, description string }

func (p *Projects) definition() extension.Definition[Project] {
	return extension.Definition[Project]{
		Group: p.config.Group, Version: "v1", Plural: "projects", Kind: "Project", Singular: "project",
		PerCaller: true, PollInterval: p.config.PollInterval,
		Columns: []extension.Column[Project]{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the namespace.", Value: func(o *Project) any { return o.Name }},
			{Name: "Display Name", Type: "string", Description: "The name for people.", Value: func(o *Project) any { return o.Annotations[p.notes.displayName] }},
			{Name: "Status", Type: "string", Description: "Active or Terminating.", Value: func(o *Project) any { return string(o.Status.Phase) }},
			{Name: "Age", Type: "date", Description: "When it was made.", Value: age},
			{Name: "Requester", Type: "string", Description: "Who asked for it.", Priority: 1, Value: func(o *Project) any { return o.Annotations[p.notes.requester] }},
		},
		Fields: map[string]func(*Project) string{"status.phase": func(o *Project) string { return string(o.Status.Phase) }},
		Docs: map[string]string{
			"": "Project is a namespace that the caller may get.", "spec": "Mirrors the namespace's spec.", "status": "Mirrors the namespace's status.",
		},
	}
}

// age formats the time since the project's creation as kubectl does.
func age(o *Project) any {
	if o.CreationTimestamp.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(o.CreationTimestamp.Time))
}

func (p *Projects) requestDefinition() extension.Definition[ProjectRequest] {
	return extension.Definition[ProjectRequest]{
		Group: p.config.Group, Version: "v1", Plural: "projectrequests", Kind: "ProjectRequest", Singular: "projectrequest",
		PerCaller: true,
		Docs:      map[string]string{"": "ProjectRequest asks for a namespace whose admin the caller will be."},
	}
}

// projectOf converts a namespace to its project. It omits metadata for storage.
func projectOf(n *corev1.Namespace) Project {
	return Project{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp,
			Labels: n.Labels, Annotations: n.Annotations,
		},
		Spec:   Spec{Finalizers: n.Spec.Finalizers},
		Status: Status{Phase: n.Status.Phase},
	}
}

// view is the provider of projects.
type view struct{ *Projects }

// List returns the namespaces that q.User may get. A user who may list namespaces costs one review, any other user one review
// for each namespace.
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

// Get returns one namespace. If the caller may not get it, Get returns ErrNotFound.
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

// Delete deletes the namespace if the caller may delete it.
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
	// If the namespace still exists, it is waiting for its contents to be deleted.
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
