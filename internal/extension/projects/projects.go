package projects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"portico.dev/internal/apiclient"
	"portico.dev/internal/extension"
)

// The groups under which projects can be served.
const (
	Group          = "project.portico.dev"
	OpenShiftGroup = "project.openshift.io"
)

// Config makes Projects.
type Config struct {
	// Client reaches the front door. Its identity needs: get, list, create and delete namespaces, create
	// subjectaccessreviews and rolebindings, and to bind Roles. Required.
	Client *apiclient.Client
	// Group is where projects are served: Group, which is the default, or OpenShiftGroup for who has its clients.
	Group string
	// Roles are the ClusterRoles that who asks for a project is given in it. Default: admin.
	Roles []string
	// ReservedPrefixes are what the names of requested projects may not begin with. Default: kube-.
	ReservedPrefixes []string
	// MaxPerUser bounds how many projects one user may have asked for that still exist. Default: no bound. Servers side
	// by side count each for itself, so that simultaneous requests to several of them may exceed it.
	MaxPerUser int
	// PollInterval is how soon a watch tells what changed. Default 15 s.
	PollInterval time.Duration
	// ReviewAge is how long an answer to "may they see it" counts. Default 10 s.
	ReviewAge time.Duration
}

// Projects are the two resources.
type Projects struct {
	config     Config
	notes      notes
	namespaces *namespaces
	reviews    *reviews
	turns      turns
}

// New makes them. It does no I/O.
func New(c Config) (*Projects, error) {
	if c.Client == nil {
		return nil, errors.New("projects: a client of the front door is required")
	}
	p := &Projects{turns: newTurns()}
	switch c.Group {
	case "", Group:
		c.Group = Group
		p.notes = notes{"portico.dev/requester", "portico.dev/display-name", "portico.dev/description"}
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

// Resources are projects and projectrequests.
func (p *Projects) Resources() []extension.Resource {
	return []extension.Resource{
		extension.Of(p.definition(), view{p}),
		extension.Of(p.requestDefinition(), requests{p}),
	}
}

// Source tells whether namespaces can be read.
func (p *Projects) Source() extension.Source {
	return extension.Source{Name: "namespaces", Trouble: p.namespaces.Trouble}
}

// Run lets go of connections when ctx ends. Everything else happens when somebody asks.
func (p *Projects) Run(ctx context.Context) error {
	<-ctx.Done()
	p.config.Client.Close()
	return nil
}
