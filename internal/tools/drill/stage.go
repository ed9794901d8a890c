package drill

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/internal/run"
	"portico.dev/internal/tools/drill/faulty"
	"portico.dev/internal/tools/toolclient"
)

// Domain is the suffix of the API groups of drills, so that a drill never touches a real group.
const Domain = "drill.portico.dev"

// idLabel is set on every object of a drill. Its value is the drill's id.
//
//reference:annotations Labels of the objects of a drill
const idLabel = "portico.dev/drill"

// Stage is the environment of one drill: a namespace, two components, of which one fails, and clients.
type Stage struct {
	// Namespace contains the Services of extension servers and the objects of the traffic.
	Namespace string

	setting            setting
	drill              Drill
	target             Target
	id                 string
	subject, bystander *actor
	// other is the second backend of the subject's APIRoute, nil without an APIRoute.
	other    *actor
	client   *toolclient.Client
	traffic  *traffic
	record   *recorder
	progress func(string)
	// namespaces and apiServices list the objects to clean up.
	namespaces, apiServices []string
}

// setting is how the components of a drill are registered at the front door.
type setting interface {
	// setUp registers the components and returns when they are served.
	setUp(ctx context.Context) error
	// clients returns the clients that send traffic.
	clients() []func(ctx context.Context, n int)
	// available returns the condition Available of the subject.
	available(ctx context.Context) (Observation, error)
	// unregister deletes what setUp has created, without the namespaces, and returns the failures.
	unregister(ctx context.Context) (left []string)
}

// actor is an extension server of the drill, or a Cluster, with its registration.
type actor struct {
	component
	*faulty.Server
	// replicas are its further endpoints.
	replicas []*faulty.Server
	// home is the namespace of the Service of an extension server.
	home, service, apiService string
}

func newStage(ctx context.Context, d Drill, t Target, id string, progress func(string)) (*Stage, error) {
	httpClient, base, err := t.connect(t.Config, d.userAgent())
	if err != nil {
		return nil, err
	}
	client, err := toolclient.NewForHTTPClient(t.Config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", t.Name, err)
	}
	if d.Replicas > 0 { // traffic goes to another server than s.client
		if httpClient, base, err = t.connect(t.Replicas[0], d.userAgent()); err != nil {
			return nil, err
		}
	}
	s := &Stage{
		Namespace: "drill-" + id, drill: d, target: t, id: id, client: client, record: &recorder{}, progress: progress,
	}
	s.traffic = &traffic{client: httpClient, base: base, record: s.record}
	if d.Cluster {
		s.setting, err = newClusters(ctx, s)
	} else {
		s.setting, err = newExtensionServers(s)
	}
	if err != nil {
		return nil, err
	}
	s.traffic.clients = s.setting.clients()
	return s, nil
}

func (d Drill) userAgent() string { return "portico-drill/" + d.Name }

// connect returns a client of a server of the target, and the base URL of the server.
func (t Target) connect(config *rest.Config, userAgent string) (client *http.Client, base string, err error) {
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	client, err = rest.HTTPClientFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("client of %s: %w", t.Name, err)
	}
	at, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("address of %s: %w", t.Name, err)
	}
	return client, strings.TrimSuffix(at.String(), "/"), nil
}

func (s *Stage) actor(who, letter, home string, stores bool) (*actor, error) {
	group := letter + "-" + s.id + "." + Domain
	a := &actor{component: component{who: who, group: group, stores: stores}, home: home, service: who, apiService: "v1." + group}
	bind := s.target.Bind
	several := who == Subject && s.drill.Endpoints > 1
	switch {
	case bind == "" && several:
		bind = s.target.endpointAddress().String()
	case bind == "":
		bind = "127.0.0.1"
	}
	var command []string
	if who == Subject && s.drill.OwnProcess {
		command = s.target.Command
	}
	server, err := faulty.New(faulty.Config{
		Group: group, ServerName: a.service + "." + home + ".svc", Address: net.JoinHostPort(bind, "0"), Stores: stores,
		Command: command,
	})
	a.Server = server
	for several && err == nil && len(a.replicas) < s.drill.Endpoints-1 {
		var replica *faulty.Server
		replica, err = server.Replica()
		a.replicas = append(a.replicas, replica)
	}
	return a, err
}

// otherBackend returns a server of the subject's group, with a separate certificate, Service and store.
func (s *Stage) otherBackend() (*actor, error) {
	a := &actor{component: s.subject.component, home: s.Namespace, service: "other-backend"}
	a.who, a.throughHeader = OtherBackend, true
	bind := cmp.Or(s.target.Bind, "127.0.0.1")
	server, err := faulty.New(faulty.Config{
		Group: a.group, ServerName: a.service + "." + a.home + ".svc", Address: net.JoinHostPort(bind, "0"), Stores: a.stores,
	})
	a.Server = server
	return a, err
}

// backends returns the servers of all extension servers of the drill.
func (s *Stage) backends() []*faulty.Server {
	all := append(s.subject.servers(), s.bystander.servers()...)
	if s.other != nil {
		all = append(all, s.other.servers()...)
	}
	return all
}

// servers returns all servers of the actor.
func (a *actor) servers() []*faulty.Server { return append([]*faulty.Server{a.Server}, a.replicas...) }

// port returns the port of its Service.
func (a *actor) port() int32 {
	if len(a.replicas) > 0 {
		return 443
	}
	return a.Port()
}

// get reads one object.
func (s *Stage) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.traffic.base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", jsonType)
	resp, err := s.traffic.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		_, message := refusal(body)
		return fmt.Errorf("%s: %s", resp.Status, message)
	}
	return json.Unmarshal(body, into)
}

// until polls until holds returns true, for at most limit. It returns the elapsed time and whether holds returned
// true. The error is the cause of the end of ctx, which ends the drill.
func (s *Stage) until(ctx context.Context, limit time.Duration, holds func(context.Context) bool) (time.Duration, bool, error) {
	start := time.Now()
	for {
		bounded, cancel := context.WithTimeout(ctx, clientPatience)
		ok := holds(bounded)
		cancel()
		took := time.Since(start)
		switch {
		case ctx.Err() != nil:
			return took, false, context.Cause(ctx)
		case ok:
			return took, true, nil
		case took >= limit:
			return took, false, nil
		}
		run.Pause(ctx, observeInterval)
	}
}

// measure waits until holds returns true and records the elapsed time, or that it did not happen.
func (s *Stage) measure(ctx context.Context, name string, limit time.Duration, holds func(context.Context) bool) error {
	took, came, err := s.until(ctx, limit, holds)
	if err == nil {
		s.record.measured(Measure{Name: name, Seconds: Seconds(took), Never: !came})
	}
	return err
}
