package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/tools/console"
)

// shownRow is an APIService as the console's page receives it.
type shownRow struct {
	Name, State, Service, Gateway, Message string
	Hops                                   []struct{ From, To, State string }
	Verdicts                               []struct{ Replica, Of, State string }
}

// openConsole is a console of a cluster with its page opened, as a browser does it.
type openConsole struct {
	t      *testing.T
	base   string // of the page
	cookie *http.Cookie
	mu     sync.Mutex // guards rows
	rows   map[string]shownRow
}

func (c *cluster) openConsole() *openConsole {
	t := c.t
	t.Helper()
	server, err := console.New(console.Config{Client: c.Config, Context: "test", Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("Run of the console = %v, want no error", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	origin, token, _ := strings.Cut(server.URL(), "/#token=")
	o := &openConsole{t: t, rows: map[string]shownRow{}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, origin+"/session", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Origin", origin)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var session struct{ Path string }
	if err := json.NewDecoder(response.Body).Decode(&session); err != nil || len(response.Cookies()) != 1 {
		t.Fatalf("session = %s, %v; want JSON and one cookie", response.Status, err)
	}
	o.base, o.cookie = origin+session.Path, response.Cookies()[0]
	stream, err := o.get(ctx, "api/stream")
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		defer stream.Body.Close()
		o.follow(stream)
	})
	return o
}

func (o *openConsole) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.base+path, nil)
	if err != nil {
		return nil, err
	}
	request.AddCookie(o.cookie)
	response, err := http.DefaultClient.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body.Close()
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return response, err
}

// follow reads the events until the console ends.
func (o *openConsole) follow(stream *http.Response) {
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 4<<20)
	event := ""
	for lines.Scan() {
		if name, is := strings.CutPrefix(lines.Text(), "event: "); is {
			event = name
		}
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is || event != "apiservices" {
			continue
		}
		var changes struct {
			Set  []shownRow
			Gone []string
		}
		if err := json.Unmarshal([]byte(data), &changes); err != nil {
			o.t.Errorf("changes of the console: %v: %s; want JSON", err, data)
			return
		}
		o.mu.Lock()
		for _, r := range changes.Set {
			o.rows[r.Name] = r
		}
		o.mu.Unlock()
	}
}

// shows waits until the page shows an APIService with this state, these joined states of its hops, and these verdicts of the
// gateway's replicas.
func (o *openConsole) shows(name, state, hops, verdicts string) {
	o.t.Helper()
	eventually(o.t, "the console shows "+name+" as "+state, func() error {
		o.mu.Lock()
		row := o.rows[name]
		o.mu.Unlock()
		var ways, found []string
		for _, h := range row.Hops {
			ways = append(ways, h.State)
		}
		for _, v := range row.Verdicts {
			if v.Of == "gateway" {
				found = append(found, v.State)
			}
		}
		if row.State != state || strings.Join(ways, " ") != hops || strings.Join(found, " ") != verdicts {
			return fmt.Errorf("it shows %+v", row)
		}
		return nil
	})
}

// Both hops of an adopted APIService, from the API server to the gateway and from there to the extension server, and which of them is broken.
func TestConsoleShowsBothHops(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	backend := c.Backend("shown.example.com")
	name := backend.APIService
	direct := adoption.ServiceOf(c.apiService(name).Spec.Service).String()
	page := c.openConsole()
	page.shows(name, "available", "available", "")
	first := c.start()
	c.adopt(name)
	page.shows(name, "available", "available available", "available")
	page.mu.Lock()
	row := page.rows[name]
	page.mu.Unlock()
	if row.Gateway != c.gateway.String() || row.Service != direct || row.Hops[0].To != c.gateway.String() || row.Hops[1].To != direct {
		t.Errorf("the way: %+v, want by %s to %s", row, c.gateway, direct)
	}

	backend.Refuse() // the second hop breaks, which the API server does not notice
	page.shows(name, "unavailable", "available unavailable", "unavailable")
	if err := c.condition(name, apiregistrationv1.Available, apiregistrationv1.ConditionTrue); err != nil {
		t.Error(err)
	}
	response, err := page.get(t.Context(), "api/apiservices/"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var detail struct {
		Conditions []struct {
			Type, Status string
			Bad          bool
		}
		Endpoints []struct{ Address string }
	}
	if err := json.NewDecoder(response.Body).Decode(&detail); err != nil {
		t.Fatal(err)
	}
	bad := ""
	for _, condition := range detail.Conditions {
		if condition.Bad {
			bad += condition.Type + " "
		}
	}
	if bad != string(adoption.BackendAvailable)+" " {
		t.Errorf("conditions that need attention = %q, want BackendAvailable only: %+v", bad, detail.Conditions)
	}
	backend.Heal()
	page.shows(name, "available", "available available", "available")

	first.stop() // the first hop breaks
	page.shows(name, "unavailable", "unavailable available", "")
	if _, err := c.adopter.Release(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	page.shows(name, "available", "available", "")
}
