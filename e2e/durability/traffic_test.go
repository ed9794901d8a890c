package durability

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// requestRate is how many requests all requestClients make in a second.
	requestRate    = 300
	requestClients = 6
	// answerTimeout is how long a client waits for an answer.
	answerTimeout = 20 * time.Second
)

// Kinds of clients, as they are counted and reported.
const (
	localHTTP2    = "local, HTTP/2"
	localHTTP1    = "local, HTTP/1.1"
	proxiedHTTP2  = "proxied, HTTP/2"
	proxiedHTTP1  = "proxied, HTTP/1.1"
	kubectlGet    = "kubectl get"
	upgradedConns = "upgrades"
	watches       = "watches"
	informersKind = "informers"
)

var clientKinds = []string{localHTTP2, localHTTP1, proxiedHTTP2, proxiedHTTP1, kubectlGet, upgradedConns, watches, informersKind}

// traffic is a set of clients behind a load balancer, with their results.
type traffic struct {
	t        *testing.T
	fronts   []*frontDoor
	balancer *loadBalancer
	address  string
	admin    *rest.Config // by way of the load balancer
	kubectl  []string

	// requests is the context of requests, and watching the context of watches, which end later.
	requests, watching       context.Context
	endRequests, endWatching context.CancelFunc
	requesting, following    sync.WaitGroup
	informers                []cache.SharedIndexInformer
	watchers                 []*eventWatcher

	mu      sync.Mutex // guards the following fields
	results map[string]*result
	// written are the versions of the writes that were acknowledged since the last report.
	written []int64
}

// result is the result of the clients of one kind since the last report.
type result struct {
	made, failed int
	// lost are acknowledged writes that a later read did not see, or of which a watch had no event, and doubled are events that a watch
	// had twice.
	lost, doubled int
	slowest       time.Duration // of the successful requests
	first         error         // the first failure
}

func newTraffic(t *testing.T, fronts []*frontDoor) *traffic {
	t.Helper()
	w := &traffic{t: t, fronts: fronts, results: map[string]*result{}}
	w.watching, w.endWatching = context.WithCancel(context.Background())
	w.requests, w.endRequests = context.WithCancel(w.watching)
	t.Cleanup(func() { w.endWatching(); w.requesting.Wait(); w.following.Wait() })
	var err error
	if w.admin, err = fronts[0].config(); err != nil {
		t.Fatal(err)
	}
	startEcho(t, w.admin, fronts)
	w.balancer = newLoadBalancer(t, fronts)
	w.address = w.balancer.address()
	w.admin.Host = "https://" + w.address
	w.prepareKubectl()
	return w
}

func (w *traffic) prepareKubectl() {
	w.t.Helper()
	dir := w.t.TempDir()
	if err := buildKubectl(); err != nil {
		w.t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	file := clientcmdapi.NewConfig()
	file.Clusters["x"] = &clientcmdapi.Cluster{Server: w.admin.Host, CertificateAuthorityData: w.admin.CAData}
	file.AuthInfos["x"] = &clientcmdapi.AuthInfo{ClientCertificateData: w.admin.CertData, ClientKeyData: w.admin.KeyData}
	file.Contexts["x"], file.CurrentContext = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}, "x"
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		w.t.Fatal(err)
	}
	w.kubectl = []string{filepath.Join(built, "kubectl"), "--kubeconfig", kubeconfig, "--cache-dir", filepath.Join(dir, "cache"), "get", "configmaps", "-o", "name"}
}

// start starts all clients.
func (w *traffic) start() {
	w.t.Helper()
	var clients []*requestClient
	for i := range requestClients {
		c := &requestClient{traffic: w, protocol: []string{"h2", "http/1.1"}[i%2], name: fmt.Sprintf("client-%d", i)}
		c.http = w.httpClient(c.protocol)
		if _, err := w.exchange(c.http, http.MethodPost, configMaps, "application/json", configMap(c.name, 0)); err != nil {
			w.t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for _, protocol := range []string{"h2", "http/1.1"} {
		w.startInformer(protocol)
		w.startWatcher(protocol)
	}
	for _, c := range clients {
		w.requesting.Go(c.run)
	}
	w.requesting.Go(w.runKubectl)
	for range 2 {
		w.requesting.Go(w.runUpgrades)
	}
}

// restart restarts a front door, and waits until it gets connections again.
func (w *traffic) restart(d *frontDoor) {
	w.t.Helper()
	d.stop()
	d.start()
	w.balancer.awaitReady(d)
}

// stop ends the requests, and waits until watchers and informers have caught up.
func (w *traffic) stop() {
	w.t.Helper()
	w.endRequests()
	w.requesting.Wait()
	found, err := w.fronts[0].client().CoreV1().ConfigMaps("default").List(w.watching, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, informer := range w.informers {
		w.fronts[0].await("known to an informer", func(context.Context) error {
			for i := range found.Items {
				object, ok, err := informer.GetStore().GetByKey("default/" + found.Items[i].Name)
				if err != nil || !ok || object.(*corev1.ConfigMap).ResourceVersion != found.Items[i].ResourceVersion {
					return fmt.Errorf("%s is known as %v, and is %s", found.Items[i].Name, object, found.Items[i].ResourceVersion)
				}
			}
			return nil
		})
	}
}

// report logs the results since the last report. It fails the test if a kind of client failed that may not fail, or if an event
// or a write was lost.
func (w *traffic) report(what string, mayFail func(kind string) bool) {
	w.t.Helper()
	results := w.log(what)
	for _, kind := range clientKinds {
		if r := results[kind]; r.made == 0 || r.lost+r.doubled > 0 || r.failed > 0 && !mayFail(kind) {
			w.t.Errorf("%s: %s: %d requests, %d failed, %d lost, %d duplicate; want some requests and no such failures",
				what, kind, r.made, r.failed, r.lost, r.doubled)
		}
	}
}

// log returns and logs the results since the last report.
func (w *traffic) log(what string) map[string]*result {
	w.t.Helper()
	w.awaitEachKind()
	w.countEvents()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range clientKinds {
		r := w.result(kind)
		line := fmt.Sprintf("%s | %s | %d | %d | %d | %d | %.1f s", what, kind, r.made, r.failed, r.lost, r.doubled, r.slowest.Seconds())
		if r.first != nil {
			line += " | " + r.first.Error()
		}
		w.t.Log(line)
	}
	results := w.results
	w.results = map[string]*result{}
	return results
}

// awaitEachKind waits, while requests are made, until something was seen of each kind of client: on a busy machine one kubectl takes seconds.
func (w *traffic) awaitEachKind() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.requests, patience)
	defer cancel()
	seen := func(kind string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.result(kind).made > 0
	}
	for _, kind := range clientKinds {
		for !seen(kind) && pause(ctx, lookAgain) {
		}
	}
}

// result is called with mu held.
func (w *traffic) result(kind string) *result {
	r := w.results[kind]
	if r == nil {
		r = &result{}
		w.results[kind] = r
	}
	return r
}

// count counts one request, unless the end of the test has cut it off.
func (w *traffic) count(ctx context.Context, kind string, began time.Time, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.result(kind)
	r.made++
	if err == nil {
		r.slowest = max(r.slowest, time.Since(began))
		return
	}
	r.failed++
	if r.first == nil {
		r.first = fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err)
	}
}

// httpClient returns an HTTP client with separate connections.
func (w *traffic) httpClient(protocol string) *http.Client {
	w.t.Helper()
	config := w.configFor(protocol)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		w.t.Fatal(err)
	}
	client.Timeout = answerTimeout
	return client
}

func (w *traffic) configFor(protocol string) *rest.Config {
	config := rest.CopyConfig(w.admin)
	config.NextProtos, config.Dial = []string{protocol}, (&net.Dialer{}).DialContext
	return config
}

// exchange makes one request. Its body cannot be sent twice, so that no client library repeats it.
func (w *traffic) exchange(client *http.Client, method, path, contentType, body string) ([]byte, error) {
	var sent io.Reader
	if body != "" {
		sent = io.NopCloser(strings.NewReader(body))
	}
	r, err := http.NewRequest(method, w.admin.Host+path, sent)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s %.300s", method, path, resp.Status, got)
	}
	return got, nil
}

// requestClient makes one request after another, by one protocol. It alone writes the ConfigMap of its name.
type requestClient struct {
	*traffic
	http           *http.Client
	protocol, name string
	// acknowledged is the last number that was written with success.
	acknowledged int
}

func (c *requestClient) run() {
	tick := time.NewTicker(time.Second * requestClients / requestRate)
	defer tick.Stop()
	for n := 1; c.requests.Err() == nil; n++ {
		c.request(n)
		select {
		case <-c.requests.Done():
		case <-tick.C:
		}
	}
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func (c *requestClient) request(n int) {
	began, kind := time.Now(), map[string]string{"h2": localHTTP2, "http/1.1": localHTTP1}[c.protocol]
	if n%5 > 2 {
		kind = map[string]string{"h2": proxiedHTTP2, "http/1.1": proxiedHTTP1}[c.protocol]
	}
	var err error
	switch n % 5 {
	case 0:
		err = c.read(kind)
	case 1:
		err = c.write(n)
	case 2:
		_, err = c.exchange(c.http, http.MethodGet, configMaps+"?resourceVersion=0", "", "")
	case 3:
		_, err = c.exchange(c.http, http.MethodGet, echoPath, "", "")
	case 4:
		body := fmt.Sprint("body ", n)
		var got []byte
		if got, err = c.exchange(c.http, http.MethodPost, echoPath, "text/plain", body); err == nil && string(got) != body {
			err = fmt.Errorf("%q came back as %q", body, got)
		}
	}
	c.count(c.requests, kind, began, err)
}

func configMap(name string, n int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"traffic":"yes"}},"data":{"value":"%d"}}`, name, n)
}

// read must return the last acknowledged write, or a later one whose response was lost.
func (c *requestClient) read(kind string) error {
	body, err := c.exchange(c.http, http.MethodGet, configMaps+"/"+c.name, "", "")
	if err != nil {
		return err
	}
	var found corev1.ConfigMap
	if err := json.Unmarshal(body, &found); err != nil {
		return err
	}
	n, err := strconv.Atoi(found.Data["value"])
	if err == nil && n < c.acknowledged {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.result(kind).lost++
		c.t.Logf("%s: %s was read as %d at %s, and %d was acknowledged", kind, c.name, n, found.ResourceVersion, c.acknowledged)
	}
	return err
}

func (c *requestClient) write(n int) error {
	body, err := c.exchange(c.http, http.MethodPut, configMaps+"/"+c.name, "application/json", configMap(c.name, n))
	if err != nil {
		return err
	}
	var written corev1.ConfigMap
	if err := json.Unmarshal(body, &written); err != nil {
		return err
	}
	c.acknowledged = n
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = append(c.written, version(&written))
	return nil
}

func (w *traffic) runKubectl() {
	for pause(w.requests, 200*time.Millisecond) {
		began := time.Now()
		out, err := exec.CommandContext(w.requests, w.kubectl[0], w.kubectl[1:]...).CombinedOutput()
		if err == nil && !strings.Contains(string(out), "configmap/client-0") {
			err = errors.New("it does not see what is there")
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
		}
		w.count(w.requests, kubectlGet, began, err)
	}
}

func (w *traffic) runUpgrades() {
	for n := 0; w.requests.Err() == nil; n++ {
		began := time.Now()
		err := w.upgrade(fmt.Sprint("stream ", n))
		w.count(w.requests, upgradedConns, began, err)
		if err != nil {
			pause(w.requests, lookAgain)
		}
	}
}

// upgrade is a stream that is used for half a second.
func (w *traffic) upgrade(text string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.admin.CAData)
	pair, err := tls.X509KeyPair(w.admin.CertData, w.admin.KeyData)
	if err != nil {
		return err
	}
	dialer := &net.Dialer{Timeout: answerTimeout}
	conn, err := tls.DialWithDialer(dialer, "tcp", w.address, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTimeout)) // an error shows at the next use
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", echoPath); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return fmt.Errorf("read the response to an upgrade: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("%s %s", resp.Status, body)
	}
	got := make([]byte, len(text))
	for range 10 {
		if _, err := io.WriteString(conn, text); err != nil {
			return err
		}
		if _, err := io.ReadFull(in, got); err != nil || string(got) != text {
			return fmt.Errorf("%q came back as %q: %w", text, got, err)
		}
		pause(w.requests, 50*time.Millisecond)
	}
	return nil
}

// startInformer starts an informer, which must not see an object go back to an older version.
func (w *traffic) startInformer(protocol string) {
	w.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(w.configFor(protocol)), 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		was, is := before.(*corev1.ConfigMap), after.(*corev1.ConfigMap)
		var err error
		if version(is) < version(was) {
			err = fmt.Errorf("%s goes back from %s to %s", is.Name, was.ResourceVersion, is.ResourceVersion)
		}
		w.count(w.requests, informersKind, time.Now(), err)
	}}); err != nil {
		w.t.Fatal(err)
	}
	w.informers = append(w.informers, informer)
	w.following.Go(func() { informer.Run(w.watching.Done()) })
}
