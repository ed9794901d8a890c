package rights

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

//go:embed testdata/scenarios.yaml
var scenariosFile []byte

// scenario is a sequence of requests, in which writes are not dry runs. scenarios.yaml describes the fields.
type scenario struct {
	Name   string           `json:"name"`
	Rights []scenarioRights `json:"rights"`
	Steps  []step           `json:"steps"`
}

type scenarioRights struct {
	Who   string `json:"who"`
	grant `json:",inline"`
}

type step struct {
	Do     string            `json:"do"`
	As     string            `json:"as"`
	Like   map[string]string `json:"like"`
	Type   string            `json:"type"`
	Body   json.RawMessage   `json:"body"`
	Show   []string          `json:"show"`
	Keep   map[string]string `json:"keep"`
	Await  int               `json:"await"`
	Silent bool              `json:"silent"`
	Bearer string            `json:"bearer"`
}

// administrator is the user of the kubeconfig.
const administrator = "administrator"

func readScenarios() ([]scenario, error) {
	var all []scenario
	if err := yaml.UnmarshalStrict(scenariosFile, &all); err != nil {
		return nil, fmt.Errorf("scenarios.yaml: %w", err)
	}
	return all, nil
}

// scenarios runs all scenarios, one after the other, and returns the answer of each step.
func (s *server) scenarios(ctx context.Context, all []persona) (answers, error) {
	plays, err := readScenarios()
	if err != nil {
		return nil, err
	}
	others, err := client(rest.CopyConfig(s.config))
	if err != nil {
		return nil, err
	}
	defer others.CloseIdleConnections()
	out := answers{}
	for i, play := range plays {
		stage := &stage{server: s, others: others, personas: all, kept: map[string]string{
			"ns": fmt.Sprintf("scenario-%d", i), "csr": signingRequest, "masters": mastersRequest,
			"rbac": rbac, "certs": "/apis/certificates.k8s.io/v1/certificatesigningrequests", "whoami": "/apis/authentication.k8s.io/v1/selfsubjectreviews",
			"admission": "/apis/admissionregistration.k8s.io/v1", "registration": "/apis/apiregistration.k8s.io/v1/apiservices",
			"definitions": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		}, out: out}
		if err := stage.play(ctx, play, i); err != nil {
			return nil, fmt.Errorf("%s: %w", play.Name, err)
		}
	}
	return out, nil
}

// stage is the state of a running scenario.
type stage struct {
	server   *server
	others   *http.Client
	personas []persona
	// kept contains values by the names that steps give them.
	kept map[string]string
	out  answers
}

func (st *stage) play(ctx context.Context, play scenario, number int) error {
	namespace := st.kept["ns"]
	if err := st.server.namespace(ctx, namespace); err != nil {
		return err
	}
	for i, right := range play.Rights {
		p, err := st.persona(right.Who)
		if err != nil {
			return err
		}
		g := right.grant
		g.In = strings.ReplaceAll(g.In, "{ns}", namespace)
		for _, m := range g.manifests(p.User, 2_000_000+number*1000+i) {
			if err := st.server.create(ctx, m); err != nil {
				return err
			}
		}
	}
	if len(play.Rights) > 0 {
		if err := st.server.settle(ctx, namespace); err != nil {
			return err
		}
	}
	for i, step := range play.Steps {
		name := fmt.Sprintf("%s %d, as %s: %s", play.Name, i, step.As, step.Do)
		a, err := st.step(ctx, name, step)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !step.Silent {
			st.out[name] = a
		}
	}
	return nil
}

func (st *stage) persona(name string) (persona, error) {
	i := slices.IndexFunc(st.personas, func(p persona) bool { return p.Name == name })
	if i < 0 {
		return persona{}, fmt.Errorf("there is no persona %q", name)
	}
	return st.personas[i], nil
}

func (st *stage) fill(text string) string {
	for name, value := range st.kept {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// step sends a request, and repeats it until it returns the awaited code, if any.
func (st *stage) step(ctx context.Context, name string, step step) (a answer, err error) {
	method, path, _ := strings.Cut(st.fill(step.Do), " ")
	q := question{Name: name, Method: method, Path: path, Type: step.Type, Headers: http.Header{},
		Watch: strings.Contains(path, "watch=true"), Lines: func(body any) []string { return show(body, step.Show) }}
	if len(step.Body) > 0 {
		q.Body = json.RawMessage(st.fill(string(step.Body)))
	}
	for header, value := range step.Like {
		q.Headers["Impersonate-"+header] = strings.Split(st.fill(value), ",")
	}
	c, introduce, user := st.server.admin, func(http.Header) {}, ""
	if step.As != administrator {
		p, err := st.persona(step.As)
		if err != nil {
			return a, err
		}
		c, introduce, user = st.others, p.introduce, p.User
	}
	if step.Bearer != "" {
		c, introduce = st.others, func(h http.Header) { h.Set("Authorization", "Bearer "+st.fill(step.Bearer)) }
	}
	waiting, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		a, body, err := send(ctx, c, st.server.host, q, introduce)
		if err != nil {
			return a, err
		}
		if step.Await == 0 || a.Code == step.Await || waiting.Err() != nil {
			for name, place := range step.Keep {
				text, ok := at(body, strings.Split(place, ".")...).(string)
				if !ok && a.Code < 400 {
					return a, fmt.Errorf("nothing at %s of %v", place, body)
				}
				st.kept[name] = text
			}
			return a.about(user), nil
		}
		select {
		case <-tick.C:
		case <-waiting.Done():
		}
	}
}

// show formats the values at some places of an object.
func show(body any, places []string) []string {
	var out []string
	for _, place := range places {
		found, err := json.Marshal(at(body, strings.Split(place, ".")...))
		if err != nil {
			found = []byte(err.Error())
		}
		out = append(out, place+" "+steady(string(found)))
	}
	return out
}

// signingRequest is a base64-encoded certificate request in PEM for the name x. mastersRequest is one for the group
// system:masters.
const (
	signingRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISE1HNENBUUF3RERFS01BZ0dBMVVFQXd3QmVEQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCS1VMSVJ2dUlkbjBvWDhseUt6MytLbkkwTGJKZldMbnpSbG1WcExiTDFMSVFMVlhydXNhaGM4dkZmRnlmK1Z0Ck85bnNXZEVUV1g5ODJLb0I5d0d6KzNxZ0FEQUtCZ2dxaGtqT1BRUURBZ05KQURCR0FpRUFvcEVvM3JkelloejMKMVhFZE90UHRKS054ak9TSnY3MnhlV1JFR0FmZjlmNENJUURXZnl3aUY2TGVTM0dkc2x2QnR2T0prRGRDSURIcgpTN0FxM1BYZjRkVDdjUT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo="
	mastersRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIZk1JR0hBZ0VBTUNVeEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRwdFlYTjBaWEp6TVFvd0NBWURWUVFEREFGNApNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUVFWmNPNnduWkk1YXRpNTF3NDEyanFlWDlYdCtyCnFWQktUVC85bm11Qks1L0ZVVXZ2RkZYYkllbzZUQjhiNm4zbFJhdGt1Tm5SWmI3NVdFc1ZKWS9sNmFBQU1Bb0cKQ0NxR1NNNDlCQU1DQTBjQU1FUUNJR2pSaVd6em5lWmlXVVo2elhQYnhuQUFEUGhlb0Vnc01vYVpiQlNDWGVTdQpBaUFEbm1mREVlZXpMbkZ6ZGpPREF4Uko4VmpuNlR5QkNVaFYwcmRvUUk4Sk13PT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="
)
