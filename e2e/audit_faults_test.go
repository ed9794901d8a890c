package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

// serving starts `aggregator serve` in a separate directory.
func serving(t *testing.T, dir string, flags ...string) (*programs.Process, *rest.Config) {
	t.Helper()
	args := append([]string{"serve", "--secure-port", "0", "--data-dir", "data", "--access-log=false"}, flags...)
	p, err := startProcess("serve", dir, []string{"HOME=" + dir}, "aggregator", args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Finish(t)
		p.Show(t)
	})
	var config *rest.Config
	if err := programs.Poll(p.Exited(), func() error {
		if config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "data", "admin.kubeconfig")); err != nil {
			return err
		}
		config.QPS = -1
		_, _, err := ask(config, "/readyz", "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return p, config
}

// ask reads a path, and returns the body and the audit id of the answer.
func ask(config *rest.Config, path, id string) (body, auditID string, err error) {
	client, err := rest.HTTPClientFor(config) // cached by configuration
	if err != nil {
		return "", "", err
	}
	r, err := http.NewRequest(http.MethodGet, config.Host+path, nil)
	if err != nil {
		return "", "", err
	}
	if id != "" {
		r.Header.Set("Audit-Id", id)
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), answer.Header.Get("Audit-Id"), err
}

// E7: in blocking mode every answered request is in the log, also after a kill.
func TestE7NothingAnsweredIsMissingAfterAKill(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	dir := t.TempDir()
	p, config := serving(t, dir, "--audit-log-path", "audit.log", "--audit-log-mode", "blocking")
	const clients, enough = 8, 2000
	var wg sync.WaitGroup
	var total atomic.Int64
	answered := make([][]string, clients)
	for c := range clients {
		wg.Go(func() {
			for n := 0; ; n++ {
				_, id, err := ask(config, "/api/v1/namespaces/default", fmt.Sprintf("storm-%d-%d", c, n))
				if err != nil {
					return // killed
				}
				answered[c] = append(answered[c], id)
				if total.Add(1) == enough {
					if err := p.Kill(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if total.Load() < enough {
		t.Fatalf("the load ended after %d requests, want at least %d", total.Load(), enough)
	}
	<-p.Exited()
	text, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var e auditv1.Event
		if json.Unmarshal([]byte(line), &e) == nil { // the last one may be half
			written[string(e.AuditID)] = true
		}
	}
	for _, ids := range answered {
		for _, id := range ids {
			if !written[id] {
				t.Errorf("request %s was answered and is not in the audit log, want an event", id)
			}
		}
	}
}

// E7 and F35: a disk without room and a webhook that hangs cost events, each counted, and no request.
func TestE7F35SinksThatFailHoldNobodyUp(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	hung := hungWebhook(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"policy.yaml": `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[
{"level":"Metadata","resources":[{"group":"","resources":["namespaces"],"resourceNames":["default"]}],"users":["portico-admin"]},{"level":"None"}]}`,
		"webhook.kubeconfig": `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":""}}],
"clusters":[{"name":"c","cluster":{"server":"http://` + hung + `"}}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// /dev/full fails every write with ENOSPC.
	_, config := serving(t, dir, "--audit-policy-file", "policy.yaml", "--audit-log-path", "/dev/full",
		"--audit-webhook-config-file", "webhook.kubeconfig", "--audit-webhook-batch-max-size", "1")
	const asked = 300
	for range asked {
		if _, _, err := ask(config, "/api/v1/namespaces/default", ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := programs.Poll(nil, func() error {
		text, _, err := ask(config, "/metrics", "")
		if err != nil {
			return err
		}
		dropped := regexp.MustCompile(`(?m)^portico_audit_events_dropped_total\{sink="(\w+)"\} (\d+)$`).FindAllStringSubmatch(text, -1)
		if want := fmt.Sprint([][2]string{{"log", fmt.Sprint(asked)}, {"webhook", "0"}}); fmt.Sprint(pairs(dropped)) != want {
			return fmt.Errorf("dropped %v, want %s", pairs(dropped), want)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func pairs(matches [][]string) (all [][2]string) {
	for _, m := range matches {
		all = append(all, [2]string{m[1], m[2]})
	}
	return all
}

// hungWebhook returns the address of a server that accepts connections and never responds.
func hungWebhook(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		var held []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, conn)
		}
		for _, conn := range held {
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}
