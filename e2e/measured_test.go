package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"portico.dev/internal/pki"
)

// work is a node n1 with a pod shop/web-1 that have worked at a steady rate since they began.
type work struct {
	began                time.Time
	nodeCores, podCores  float64
	nodeMemory, podBytes int
}

// kubeletToken is the token that the kubelet of the stories accepts.
const kubeletToken = "kubelets-know-it"

// kubelet is the command kubelet: it sets a variable to the port of a kubelet that serves /metrics/resource over TLS to clients
// with the token, and writes the CA of its certificate to a file.
func kubelet(ts *testscript.TestScript, args []string) {
	ca, err := pki.NewAuthority("kubelets")
	ts.Check(err)
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "system:node:n1", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	ts.Check(err)
	pair, err := pki.StaticKeyPair(cert, key)
	ts.Check(err)
	w := work{began: time.Now(), nodeCores: 0.25, nodeMemory: 300 << 20, podCores: 0.1, podBytes: 64 << 20}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+kubeletToken:
			rw.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != "/metrics/resource":
			rw.WriteHeader(http.StatusNotFound)
		default:
			w.asKubelet(rw)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Listener = tls.NewListener(s.Listener, pki.ServerConfig(pair))
	s.Start()
	ts.Defer(s.Close)
	ts.Setenv(args[0], portOf(s.Listener))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), ca.PEM(), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("kubelet-token"), []byte(kubeletToken), 0o600))
}

func (w work) asKubelet(to io.Writer) {
	now := time.Now()
	seconds, at := now.Sub(w.began).Seconds(), now.UnixMilli()
	pod := `{container="main",namespace="shop",pod="web-1"}`
	fmt.Fprintf(to, "node_cpu_usage_seconds_total %g %d\n", w.nodeCores*seconds, at)
	fmt.Fprintf(to, "node_memory_working_set_bytes %d %d\n", w.nodeMemory, at)
	fmt.Fprintf(to, "container_cpu_usage_seconds_total%s %g %d\n", pod, w.podCores*seconds, at)
	fmt.Fprintf(to, "container_memory_working_set_bytes%s %d %d\n", pod, w.podBytes, at)
	fmt.Fprintf(to, "container_start_time_seconds%s %d\n", pod, w.began.Unix())
}

// exporter is the command exporter: it starts the targets of a Prometheus, a node_exporter, a cAdvisor and an application in
// one, and writes a Prometheus configuration that scrapes them every second.
func exporter(ts *testscript.TestScript, args []string) {
	w := work{began: time.Now(), nodeCores: 0.5, nodeMemory: 700 << 20, podCores: 0.2, podBytes: 128 << 20}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { w.asExporter(rw) }))
	ts.Defer(s.Close)
	const configuration = "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: all\n  static_configs:\n  - targets: [%q]\n"
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), fmt.Appendf(nil, configuration, s.Listener.Addr()), 0o644))
}

func (w work) asExporter(to io.Writer) {
	seconds := time.Since(w.began).Seconds()
	const total = 4 << 30
	pod := `{container="main",id="/kubepods/web-1",namespace="shop",pod="web-1"}`
	fmt.Fprintln(to, `node_uname_info{nodename="n1",sysname="Linux"} 1`)
	fmt.Fprintf(to, "node_cpu_seconds_total{cpu=\"0\",mode=\"user\"} %g\n", w.nodeCores*seconds)
	fmt.Fprintf(to, "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} %g\n", (1-w.nodeCores)*seconds)
	fmt.Fprintf(to, "node_memory_MemTotal_bytes %d\nnode_memory_MemAvailable_bytes %d\n", total, total-w.nodeMemory)
	fmt.Fprintf(to, "container_cpu_usage_seconds_total%s %g\n", pod, w.podCores*seconds)
	fmt.Fprintf(to, "container_memory_working_set_bytes%s %d\n", pod, w.podBytes)
	fmt.Fprintf(to, "http_requests_total{namespace=\"shop\",pod=\"web-1\"} %g\n", 3*seconds)
	fmt.Fprintln(to, `queue_depth{namespace="shop",queue="mail"} 12`)
}
