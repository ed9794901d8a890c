package projects

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"portico.dev/internal/extension"
)

// Project is a namespace that the caller may get.
type Project struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// Spec mirrors a namespace's.
type Spec struct {
	Finalizers []corev1.FinalizerName `json:"finalizers,omitempty" description:"What must be cleaned up before the project is gone."`
}

// Status mirrors a namespace's.
type Status struct {
	Phase corev1.NamespacePhase `json:"phase,omitempty" description:"Active or Terminating."`
}

// ProjectRequest asks for a project. It exists only as long as the request.
type ProjectRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	DisplayName string `json:"displayName,omitempty" description:"A name for people."`
	Description string `json:"description,omitempty" description:"What the project is for."`
}

// notes are the annotations that carry what a request said.
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

// age is how long ago the project was made, as people and every server of Kubernetes put it.
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

// projectOf is a namespace as its project. What belongs to the machinery of storage stays behind.
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
