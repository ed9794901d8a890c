package attacks

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	bench "portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

// The attacker is a separate user with the bystander's rights, so that the test does not measure fairness between users.
const (
	attackerName  = "mallory"
	attackerToken = "attacks-attacker-token"
	users         = bench.AdminToken + `,root,u-0,"system:masters"` + "\n" + bench.UserToken + `,alice,u-1,"dev,ops"` + "\n" +
		attackerToken + "," + attackerName + `,u-2,"dev"` + "\n"
)

// environment is a front door on one engine, a valid extension server, and an attacker.
type environment struct {
	t      *testing.T
	front  *bench.Front
	admin  *http.Client
	child  *bench.Child
	logged func() string
}

func newEnvironment(t *testing.T, engine string, chosen []*attackRow) *environment {
	y, err := bench.New(*program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := y.Close(); err != nil {
			t.Error(err)
		}
	})
	dir, err := y.Dir("users")
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Backend(); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--token-auth-file", tokens}
	if *program == "" || engine != portico { // the program of the flag may be too old for the choice
		flags = append(flags, "--http-engine="+engine, "--backend-engine="+engine)
	}
	e := &environment{t: t, logged: y.Log}
	if e.front, err = y.Front("front", flags...); err != nil {
		t.Fatal(err)
	}
	if e.admin, err = bench.NewClient(e.front.Server, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.admin.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	if err := e.front.Grant(ctx); err != nil {
		t.Fatal(err)
	}
	e.allow(ctx)
	if err := e.front.Register(ctx, 0, 1); err != nil {
		t.Fatal(err)
	}
	e.spawn(ctx, chosen)
	return e
}

// allow gives the attacker the rights that the bystander has.
func (e *environment) allow(ctx context.Context) {
	_, err := e.front.Client.RbacV1().RoleBindings(bench.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: attackerName, Namespace: bench.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "things"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: attackerName}},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

// spawn starts the attacker, and registers its extension servers: a separate one for each attack that needs one, so that the
// attacks do not affect each other.
func (e *environment) spawn(ctx context.Context, chosen []*attackRow) {
	ca, err := pki.NewAuthority("hostile")
	if err != nil {
		e.t.Fatal(err)
	}
	o := orders{Front: e.front.Address}
	o.Certificate, o.Key, err = ca.Issue(pki.Leaf{
		CommonName: "hostile", DNSNames: []string{"*." + bench.Namespace + ".svc"}, Server: true, TTL: 24 * time.Hour,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	var names []string
	for _, a := range chosen {
		if a.nul {
			service, _ := a.service()
			o.NULServices = append(o.NULServices, service)
			names = append(names, service+"."+bench.Namespace+".svc\x00.example.com")
		}
	}
	if len(names) > 0 {
		if o.NULCertificate, o.NULKey, err = ca.Issue(pki.Leaf{CommonName: "hostile", DNSNames: names, Server: true, TTL: 24 * time.Hour}); err != nil {
			e.t.Fatal(err)
		}
	}
	if e.child, err = bench.Spawn(attackerRole, o); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if err := e.child.Stop(); err != nil {
			e.t.Errorf("stopping the attacker failed: %v, want no error", err)
		}
	})
	ports := strings.Fields(e.child.Address)
	registered := map[string]bool{}
	for _, a := range chosen {
		service, which := a.service()
		if service == "" || registered[service] {
			continue
		}
		registered[service] = !a.nul
		port, err := strconv.ParseInt(ports[which], 10, 32)
		if err != nil {
			e.t.Fatal(err)
		}
		if err := e.front.RegisterAt(ctx, service, int32(port), ca.PEM()); err != nil {
			e.t.Fatal(err)
		}
	}
	for service, available := range registered {
		if available {
			e.untilAvailable(ctx, service)
		}
	}
}

func (e *environment) untilAvailable(ctx context.Context, service string) {
	name := "v1." + bench.GroupOf(service)
	err := programs.Poll(ctx.Done(), func() error {
		a, err := e.front.APIService.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range a.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionStatus(corev1.ConditionTrue) {
				return nil
			}
		}
		return fmt.Errorf("APIService %s is not available: %+v", name, a.Status.Conditions)
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// sample is the resource use of the front door's process.
type sample struct {
	cpu       time.Duration
	rss, peak int64 // bytes; the peak is since resetPeak
	heap      int64 // bytes in use by the heap and stacks
}

func (e *environment) sample(ctx context.Context) (s sample, err error) {
	if s.cpu, err = measure.CPU(e.front.PID); err != nil {
		return s, err
	}
	if s.rss, s.peak, err = resident(e.front.PID); err != nil {
		return s, err
	}
	s.heap, err = e.heap(ctx)
	return s, err
}

// resident reads VmRSS and VmHWM.
func resident(pid int) (now, peak int64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			now = kb << 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			peak = kb << 10
		}
	}
	if now == 0 || peak == 0 {
		return 0, 0, fmt.Errorf("process %d has no VmRSS or VmHWM", pid)
	}
	return now, peak, nil
}

// resetPeak resets the kernel's peak value.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200)
}

// heap reads the heap size from the front door's metrics.
func (e *environment) heap(ctx context.Context) (int64, error) {
	r, err := bench.NewRequest(ctx, e.front.Server, bench.Ask{Method: http.MethodGet, Path: "/metrics", Accept: "text/plain", Token: bench.AdminToken}, "")
	if err != nil {
		return 0, err
	}
	resp, err := e.admin.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var total float64
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		for _, name := range []string{"go_memstats_heap_inuse_bytes ", "go_memstats_stack_inuse_bytes "} {
			if value, ok := strings.CutPrefix(lines.Text(), name); ok {
				f, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return 0, err
				}
				total += f
			}
		}
	}
	if total == 0 {
		return 0, fmt.Errorf("%s: no go_memstats_heap_inuse_bytes", resp.Status)
	}
	return int64(total), lines.Err()
}

// order sends an order to the attacker and waits for its report.
func (e *environment) order(o order) (report, error) {
	question, err := json.Marshal(o)
	if err != nil {
		return report{}, err
	}
	line, err := e.child.Query(string(question))
	if err != nil {
		return report{}, fmt.Errorf("the attacker has ended: %w", err)
	}
	var r report
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return report{}, fmt.Errorf("the attacker said %.200q: %w", line, err)
	}
	return r, nil
}
