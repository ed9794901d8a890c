package metricsapi

import (
	"context"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"portico.dev/pkg/extension"
)

var everything = extension.Query{}

func (f *fakeCluster) source(change ...func(*KubeletConfig)) *KubeletSource {
	f.t.Helper()
	c := KubeletConfig{
		Client: f.serve(), AddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeHostName},
		Resolution: 100 * time.Millisecond, Timeout: 30 * time.Second, MaxAge: time.Hour,
	}
	for _, f := range change {
		f(&c)
	}
	s, err := NewKubeletSource(c)
	must(f.t, err)
	s.config.Timeout = max(s.config.Timeout, c.Timeout) // A loaded machine may take longer than the resolution.
	start(f.t, s)
	return s
}

func nodes(t *testing.T, s Source) map[string]NodeUsage {
	t.Helper()
	list, err := s.Nodes(t.Context(), everything)
	must(t, err)
	out := map[string]NodeUsage{}
	for _, u := range list {
		out[u.Name] = u
	}
	return out
}

func pods(t *testing.T, s Source) map[string]PodUsage {
	t.Helper()
	list, err := s.Pods(t.Context(), everything)
	must(t, err)
	out := map[string]PodUsage{}
	for _, u := range list {
		out[u.Namespace+"/"+u.Name] = u
	}
	return out
}

func near(got, want float64) bool { return math.Abs(got-want) < want/5 }

func TestKubeletMetricsBecomeNodesAndPods(t *testing.T) {
	f := newFakeCluster(t)
	f.node("n1", 2, "shop/web-1")
	f.node("n2", 0.5, "shop/web-2", "kube-system/dns")
	f.running = append(f.running[:2:2], "shop/other") // kube-system/dns has stopped.
	s := f.source()
	eventually(t, "everything is measured", func() bool { return len(nodes(t, s)) == 2 && len(pods(t, s)) == 2 })
	if s.LastError() != nil || s.Stored(t.Context()) != nil {
		t.Errorf("LastError = %v, want a complete measurement without errors", s.LastError())
	}
	n1, n2, web := nodes(t, s)["n1"], nodes(t, s)["n2"], pods(t, s)["shop/web-1"]
	if !near(n1.Cores, 2) || !near(n2.Cores, 0.5) || n1.WorkingSet != 1<<20 || n1.Labels["node"] != "n1" || n1.Window <= 0 {
		t.Errorf("n1 = %+v, n2 = %+v, want about 2 and 0.5 cores", n1, n2)
	}
	if !near(web.Containers[0].Cores, 1) || web.Containers[0].WorkingSet != 4096 || web.Labels["app"] != "web-1" {
		t.Errorf("Pod shop/web-1 = %+v, want about 1 core, 4096 bytes and its labels", web)
	}
}

func TestFailedKubeletKeepsLastMeasurement(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fails := map[string]struct {
		answer func(w http.ResponseWriter)
		wrong  string
	}{
		"says 403":            {func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, "nodes/metrics"},
		"says 401":            {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, "does not know who we are"},
		"says nonsense":       {func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, "own CPU or memory"},
		"says too much":       {func(w http.ResponseWriter) { _, _ = w.Write([]byte(strings.Repeat("#", 1<<20))) }, "too large"},
		"redirects elsewhere": {func(w http.ResponseWriter) { w.Header().Set("Location", "https://x"); w.WriteHeader(http.StatusFound) }, "HTTP 302"},
	}
	for situation, c := range fails {
		t.Run(situation, func(t *testing.T) {
			f := newFakeCluster(t)
			bad := f.node("bad", 1)
			f.node("good", 1)
			s := f.source(func(c *KubeletConfig) { c.MaxBytes = 1 << 16 })
			eventually(t, "both are measured", func() bool { return len(nodes(t, s)) == 2 })
			bad.set(func(k *fakeKubelet) { k.answer = c.answer })
			eventually(t, "trouble", func() bool { return s.LastError() != nil })
			if err := s.LastError(); !strings.Contains(err.Error(), "1 of 2 kubelets do not answer (bad)") || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("LastError = %v, want \"1 of 2 kubelets do not answer (bad)\" and %q", err, c.wrong)
			}
			before := nodes(t, s)
			eventually(t, "the good one is measured again", func() bool { return nodes(t, s)["good"].Timestamp.After(before["good"].Timestamp) })
			if got := nodes(t, s)["bad"]; got.Name == "" || !got.Timestamp.Equal(before["bad"].Timestamp) {
				t.Errorf("node bad after its kubelet failed = %+v, want the last good measurement", got)
			}
			bad.set(func(k *fakeKubelet) { k.answer = nil })
			eventually(t, "the end of trouble", func() bool { return s.LastError() == nil })
		})
	}
}

func TestMeasurementsOlderThanMaxAgeAreDropped(t *testing.T) {
	f := newFakeCluster(t)
	bad := f.node("bad", 1, "shop/web")
	f.node("good", 1)
	s := f.source(func(c *KubeletConfig) { c.MaxAge = time.Second })
	eventually(t, "both are measured", func() bool { return len(nodes(t, s)) == 2 && len(pods(t, s)) == 1 })
	bad.set(func(k *fakeKubelet) { k.answer = func(w http.ResponseWriter) { w.WriteHeader(500) } })
	eventually(t, "what is old goes", func() bool {
		now := nodes(t, s)
		return now["bad"].Name == "" && now["good"].Name != "" && len(pods(t, s)) == 0
	})
}

func TestDeletedNodesAreDroppedAfterList(t *testing.T) {
	f := newFakeCluster(t)
	f.node("n1", 1)
	s, err := NewKubeletSource(KubeletConfig{Client: f.serve(), AddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}})
	must(t, err)
	defer s.http.Close()
	s.known["gone"] = &node{}
	if s.scrapeAll(t.Context()); s.known["gone"] == nil {
		t.Error("node \"gone\" was removed before the first list of Nodes, want it kept")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.nodes.Run(ctx) }()
	<-s.nodes.Listed()
	if s.scrapeAll(t.Context()); s.known["gone"] != nil || s.known["n1"] == nil || s.known["n1"].err != nil {
		t.Errorf("known nodes after the list = %+v, want only n1 without an error", s.known)
	}
	cancel()
	must(t, <-done)
}

func TestPodsWithoutListRightHaveNoLabels(t *testing.T) {
	f := newFakeCluster(t)
	f.noPods = true
	f.node("n1", 1, "shop/web")
	s := f.source()
	eventually(t, "numbers without labels", func() bool { return len(pods(t, s)) == 1 })
	if u := pods(t, s)["shop/web"]; u.Labels != nil {
		t.Errorf("Pod shop/web without the right to list Pods = %+v, want no labels", u)
	}
	eventually(t, "trouble that names pods", func() bool { return s.LastError() != nil && strings.Contains(s.LastError().Error(), "list pods") })
}

func TestKubeletWithAnotherCAIsRejected(t *testing.T) {
	f := newFakeCluster(t)
	k := f.node("n1", 1)
	other := newFakeCluster(t)
	s := f.source(func(c *KubeletConfig) { c.Client.CAData = other.ca.PEM() })
	eventually(t, "trouble", func() bool { return s.LastError() != nil })
	if !strings.Contains(s.LastError().Error(), "certificate") {
		t.Errorf("LastError with another CA = %v, want an error that contains \"certificate\"", s.LastError())
	}
	k.set(func(k *fakeKubelet) {
		if k.requests > 0 {
			t.Errorf("kubelet with an untrusted certificate received %d requests, want 0", k.requests)
		}
	})
}

func TestInsecureOnRequest(t *testing.T) {
	f := newFakeCluster(t)
	f.node("n1", 1)
	other := newFakeCluster(t)
	s := f.source(func(c *KubeletConfig) { c.Client.CAData, c.Insecure = other.ca.PEM(), true })
	eventually(t, "a measurement", func() bool { return len(nodes(t, s)) == 1 })
}

func TestAddresses(t *testing.T) {
	address := func(kind corev1.NodeAddressType, a string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: kind, Address: a}
	}
	both := []corev1.NodeAddress{address(corev1.NodeInternalIP, "10.0.0.1"), address(corev1.NodeHostName, "n1"), address(corev1.NodeInternalIP, "fd00::1")}
	for _, c := range []struct {
		situation string
		config    KubeletConfig
		object    listedObject
		want      string
	}{
		{"the host name by default, and the port of the status", KubeletConfig{}, listedObject{Addresses: both, KubeletPort: 10251}, "https://n1:10251/metrics/resource"},
		{"the preferred type, the first of it", KubeletConfig{AddressTypes: []corev1.NodeAddressType{"ExternalIP", "InternalIP"}}, listedObject{Addresses: both}, "https://10.0.0.1:10250/metrics/resource"},
		{"IPv6", KubeletConfig{}, listedObject{Addresses: []corev1.NodeAddress{address(corev1.NodeInternalIP, "fd00::1")}}, "https://[fd00::1]:10250/metrics/resource"},
		{"a given port", KubeletConfig{Port: 443}, listedObject{Addresses: both, KubeletPort: 10251}, "https://n1:443/metrics/resource"},
		{"another path", KubeletConfig{}, listedObject{Addresses: both, Annotations: map[string]string{pathAnnotation: "/other"}}, "https://n1:10250/other"},
		{"a path that is an address", KubeletConfig{}, listedObject{Addresses: both, Annotations: map[string]string{pathAnnotation: "@evil.example/x"}}, "https://n1:10250/metrics/resource"},
		{"a path with a query", KubeletConfig{}, listedObject{Addresses: both, Annotations: map[string]string{pathAnnotation: "/run?x=y"}}, "https://n1:10250/run%3Fx=y"},
		{"no address", KubeletConfig{}, listedObject{}, ""},
	} {
		t.Run(c.situation, func(t *testing.T) {
			c.config.Client = &rest.Config{Host: "http://127.0.0.1:1"}
			s, err := NewKubeletSource(c.config)
			must(t, err)
			got, err := s.address(c.object)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestInvalidKubeletConfigsAreRejected(t *testing.T) {
	client := &rest.Config{Host: "http://127.0.0.1:1"}
	for situation, c := range map[string]KubeletConfig{
		"no API":                      {},
		"a CA and insecure":           {Client: client, CAFile: "x", Insecure: true},
		"a port beyond ports":         {Client: client, Port: 65536},
		"a CA file that is not there": {Client: client, CAFile: "/nothing"},
		"a negative age":              {Client: client, MaxAge: -1},
	} {
		if _, err := NewKubeletSource(c); err == nil {
			t.Errorf("NewKubeletSource with %s: error = nil, want an error", situation)
		}
	}
}

func TestHangingKubeletsDoNotDelayOtherNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	f := newFakeCluster(t)
	release := make(chan struct{})
	defer close(release)
	var hanging []*fakeKubelet
	for _, name := range []string{"a1", "a2", "a3"} { // These names sort before the good kubelet.
		hanging = append(hanging, f.node(name, 1))
	}
	f.node("good", 1)
	s := f.source(func(c *KubeletConfig) {
		c.MaxInFlight, c.Resolution, c.Timeout = 2, 500*time.Millisecond, 500*time.Millisecond
	})
	eventually(t, "all are measured", func() bool { return len(nodes(t, s)) == 4 })
	for _, k := range hanging {
		k.set(func(k *fakeKubelet) { k.answer = func(http.ResponseWriter) { <-release } })
	}
	eventually(t, "trouble", func() bool { return s.LastError() != nil && strings.Contains(s.LastError().Error(), "3 of 4") })
	for range 2 {
		before := nodes(t, s)["good"].Timestamp
		eventually(t, "the good one is measured again", func() bool { return nodes(t, s)["good"].Timestamp.After(before) })
	}
	eventually(t, "trouble with those that hang alone", func() bool { // On a busy machine the good one is sometimes late.
		err := s.LastError()
		return err != nil && strings.Contains(err.Error(), "3 of 4") && !strings.Contains(err.Error(), "good")
	})
}
