package extension_test

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/pkg/extension"
)

// Project is what a caller may see of something that others see otherwise, or not at all.
type Project struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Role string `json:"role" description:"What the caller is in it: admin or member."`
}

// Projects knows who is in what. A real one would ask for that.
type Projects struct {
	mu      sync.Mutex
	members map[string][]string // by project; the first is its admin
}

// List shows the projects that the caller is in. The definition says PerCaller, so q.User is set, and what this returns
// is for nobody else.
func (p *Projects) List(_ context.Context, q extension.Query) ([]Project, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var seen []Project
	for name, members := range p.members {
		switch slices.Index(members, q.User.GetName()) {
		case -1:
		case 0:
			seen = append(seen, Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Role: "admin"})
		default:
			seen = append(seen, Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Role: "member"})
		}
	}
	return seen, nil
}

// Create makes a project whose admin is who asked for it.
func (p *Projects) Create(_ context.Context, q extension.Query, wanted Project) (Project, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, taken := p.members[q.Name]; taken {
		return Project{}, extension.ErrExists
	}
	p.members[q.Name] = []string{q.User.GetName()}
	wanted.Role = "admin"
	return wanted, nil
}

// Delete ends a project, for its admin. To anybody else it looks as List does: what they may not see is not there.
func (p *Projects) Delete(_ context.Context, q extension.Query) (Project, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	members := p.members[q.Name]
	if len(members) == 0 || members[0] != q.User.GetName() {
		return Project{}, extension.ErrNotFound
	}
	delete(p.members, q.Name)
	return Project{ObjectMeta: metav1.ObjectMeta{Name: q.Name}, Role: "admin"}, nil
}

func projectDefinition() extension.Definition[Project] {
	return extension.Definition[Project]{
		Group: "project.example.com", Version: "v1", Plural: "projects", Kind: "Project", Singular: "project",
		PerCaller:    true,
		PollInterval: 2 * time.Second, // makes it watchable
		Columns: []extension.Column[Project]{
			{Name: "Name", Type: "string", Format: "name", Value: func(p *Project) any { return p.Name }},
			{Name: "Role", Type: "string", Value: func(p *Project) any { return p.Role }},
		},
	}
}
