//go:build incumbent

package behind

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"portico.dev/internal/tools/doctor"
	"portico.dev/internal/tools/drill/faulty"
)

// breakage is one fault on the way to an extension server, with the hop that causes it.
type breakage struct {
	name string
	hop  string
	// fault is the fault of the server.
	fault faulty.Fault
	// objects breaks the objects that lead to the server.
	objects func(t *testing.T, kubeconfig string, r registration)
	// found is a part of the expected report.
	found string
	// unnoticed: kube-apiserver still reports Available=True.
	unnoticed bool
	// endpointsOnly and namesOnly: it is about one way to reach servers.
	endpointsOnly, namesOnly bool
}

func breakages() []breakage {
	return []breakage{
		{name: "the process is gone", hop: doctor.HopTCP, fault: faulty.Refuse, found: "refuses connections"},
		{name: "every byte is swallowed", hop: doctor.HopTLS, fault: faulty.Blackhole},
		{name: "requests are never answered", hop: doctor.HopDiscovery, fault: faulty.Hang},
		{name: "the certificate has expired", hop: doctor.HopTLS, fault: faulty.ExpiredCertificate, found: "expired"},
		{name: "another authority signed", hop: doctor.HopTLS, fault: faulty.WrongAuthority, found: "nobody that the APIService names"},
		{name: "the certificate is for another name", hop: doctor.HopTLS, fault: faulty.WrongName, found: "another.server.svc"},
		{name: "discovery is HTML", hop: doctor.HopDiscovery, fault: faulty.GarbageDiscovery, unnoticed: true},
		{name: "answers come a byte at a time", hop: doctor.HopDiscovery, fault: faulty.SlowDrip, unnoticed: true},
		{name: "OpenAPI documents have no end", hop: doctor.HopOpenAPI, fault: faulty.HugeOpenAPI, unnoticed: true},
		// Some APIServices have no resources at times: external.metrics.k8s.io without a metric.
		{name: "discovery is empty", found: "has 0 resources", fault: faulty.VanishingDiscovery, unnoticed: true},
		{name: "there is no Service", hop: doctor.HopService, objects: func(t *testing.T, kubeconfig string, r registration) {
			kubectl(t, kubeconfig, "", "-n", r.namespace, "delete", "service", r.service)
		}},
		{name: "the Service has another port", hop: doctor.HopService, endpointsOnly: true, objects: func(t *testing.T, kubeconfig string, r registration) {
			patchAPIService(t, kubeconfig, r, `{"spec":{"service":{"port":8443}}}`)
		}},
		{name: "no endpoint is ready", hop: doctor.HopEndpoints, endpointsOnly: true, objects: func(t *testing.T, kubeconfig string, r registration) {
			kubectl(t, kubeconfig, "", "-n", r.namespace, "patch", "endpointslice", r.service, "--type=json",
				"-p", `[{"op":"add","path":"/endpoints/0/conditions","value":{"ready":false}}]`)
		}},
		{name: "there are no endpoints", hop: doctor.HopEndpoints, endpointsOnly: true, objects: func(t *testing.T, kubeconfig string, r registration) {
			kubectl(t, kubeconfig, "", "-n", r.namespace, "delete", "endpointslice", r.service)
		}},
		{name: "endpoints are on another port", hop: doctor.HopTCP, endpointsOnly: true, objects: func(t *testing.T, kubeconfig string, r registration) {
			kubectl(t, kubeconfig, r.slice(1), "apply", "-f", "-")
		}},
		{name: "an external name does not resolve", hop: doctor.HopDNS, namesOnly: true, objects: func(t *testing.T, kubeconfig string, r registration) {
			kubectl(t, kubeconfig, "", "-n", r.namespace, "patch", "service", r.service, "--type=merge", "-p", `{"spec":{"externalName":"nowhere.invalid"}}`)
		}},
		// kube-apiserver with its flag for endpoints does not follow names.
		{name: "it does not follow external names", hop: doctor.HopService, endpointsOnly: true, objects: func(t *testing.T, kubeconfig string, r registration) {
			kubectl(t, kubeconfig, "", "-n", r.namespace, "delete", "service", r.service)
			r.address = "localhost"
			kubectl(t, kubeconfig, r.yaml(), "apply", "-f", "-")
		}},
		{name: "caBundle is somebody else's", hop: doctor.HopTLS, objects: func(t *testing.T, kubeconfig string, r registration) {
			other, err := faulty.New(faulty.Config{Group: "x.example.com", ServerName: "x.x.svc", Address: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			r.ca = other.CABundle()
			kubectl(t, kubeconfig, r.yaml(), "apply", "-f", "-")
		}},
	}
}

func patchAPIService(t *testing.T, kubeconfig string, r registration, patch string) {
	t.Helper()
	kubectl(t, kubeconfig, "", "patch", "apiservice", r.apiService(), "--type=merge", "-p", patch)
}

// The doctor's diagnosis is true before kube-apiserver has noticed, and after it has, however it reaches extension servers.
func TestDoctor(t *testing.T) {
	t.Run("over endpoints", func(t *testing.T) { t.Parallel(); examineAll(t, true) })
	t.Run("over an external name", func(t *testing.T) { t.Parallel(); examineAll(t, false) })
}

// brokenAPIService is one APIService with its fault.
type brokenAPIService struct {
	breakage
	registration
	server *faulty.Server
}

func examineAll(t *testing.T, routing bool) {
	k := control(t, routing)
	kubectl(t, k.Kubeconfig, "", "create", "namespace", "ward")
	address, bind := "localhost", "127.0.0.1"
	if routing {
		address = reachable(t)
		bind = address
	}
	var patients []brokenAPIService
	for i, b := range breakages() {
		if b.endpointsOnly && !routing || b.namesOnly && routing {
			continue
		}
		p := brokenAPIService{breakage: b, registration: registration{
			group: fmt.Sprintf("p%d.ward.example.com", i), namespace: "ward", service: fmt.Sprintf("p%d", i), address: address,
		}}
		p.server = extensionServer(t, &p.registration, bind)
		kubectl(t, k.Kubeconfig, p.yaml(), "apply", "-f", "-")
		patients = append(patients, p)
	}
	eventually(t, "all are well", func() error { return well(t, k.Kubeconfig) })
	for _, p := range patients {
		if err := p.server.SetFault(p.fault); err != nil {
			t.Fatal(err)
		}
		if p.objects != nil {
			p.objects(t, k.Kubeconfig, p.registration)
		}
	}
	told := examine(t, k.Kubeconfig)
	for _, p := range patients {
		p.check(t, "at once", told[p.apiService()])
	}
	eventually(t, "kube-apiserver has noticed", func() error {
		told = examine(t, k.Kubeconfig)
		for _, p := range patients {
			if !p.unnoticed && told[p.apiService()].Available.Status == "True" {
				return fmt.Errorf("%s (%s) is still available", p.apiService(), p.name)
			}
		}
		return nil
	})
	for _, p := range patients {
		p.check(t, "once it is noticed", told[p.apiService()])
		way := strings.ReplaceAll(t.Name()[len("TestDoctor/"):], "_", " ")
		book.add(doctorWay+way, func() { book.Doctor = append(book.Doctor, diagnosed{way, p.name, p.hop}) })
	}
}

// A server without the right to review access serves administrators, among them kube-apiserver's check, and no other user. The
// doctor's command fixes it.
func TestDoctorSeesMissingRights(t *testing.T) {
	s := install(t, control(t, false))
	eventually(t, "available", func() error { return s.available(t) })
	kubectl(t, s.Kubeconfig, "", "delete", "clusterrolebinding", serverAccount+":system:auth-delegator")
	var d *doctor.Diagnosis
	eventually(t, "the doctor sees it", func() error {
		r := examine(t, s.Kubeconfig)["v1.metrics.k8s.io"]
		if d = r.Broken; d == nil || d.Hop != doctor.HopIdentity {
			return fmt.Errorf("%+v: %s", r.Available, diagnosis(r))
		}
		return nil
	})
	if err := s.available(t); err != nil {
		t.Errorf("available = %v, want no error: kube-apiserver does not notice the fault", err)
	}
	mend := d.Mend[len(d.Mend)-1]
	if want := "kubectl create clusterrolebinding " + serverAccount + ":system:auth-delegator --clusterrole=system:auth-delegator --serviceaccount=" + serverNamespace + ":" + serverAccount; mend != want {
		t.Fatalf("last fix = %s\nwant %s", mend, want)
	}
	kubectl(t, s.Kubeconfig, "", strings.Fields(mend)[1:]...)
	eventually(t, "all is well again", func() error { return well(t, s.Kubeconfig) })
	const way = "to an extserver without rights"
	book.add(doctorWay+way, func() {
		book.Doctor = append(book.Doctor, diagnosed{way, "it may not ask who may do what", doctor.HopIdentity})
	})
}

// examine returns the doctor's report of every APIService.
func examine(t *testing.T, kubeconfig string) map[string]doctor.Report {
	t.Helper()
	out := runProgram(t, kubeconfig, "", "aggregator", "doctor", "-o", "json")
	var all struct{ APIServices []doctor.Report }
	if err := json.Unmarshal([]byte(out.stdout), &all); err != nil {
		t.Fatalf("doctor -o json = %v: %s; want JSON", err, out)
	}
	told := map[string]doctor.Report{}
	broken := 0
	for _, r := range all.APIServices {
		told[r.APIService] = r
		if r.Broken != nil {
			broken = 1
		}
	}
	if out.code != broken {
		t.Errorf("exit status of doctor = %d, want %d", out.code, broken)
	}
	return told
}

func well(t *testing.T, kubeconfig string) error {
	for name, r := range examine(t, kubeconfig) {
		if r.Broken != nil || r.Available.Status != "True" {
			return fmt.Errorf("%s: %+v, %+v", name, r.Available, r.Broken)
		}
	}
	return nil
}

func (p brokenAPIService) check(t *testing.T, when string, r doctor.Report) {
	t.Helper()
	t.Logf("%s, %s: Available %s (%s: %s): %s", p.name, when, r.Available.Status, r.Available.Reason, r.Available.Message, diagnosis(r))
	switch {
	case p.hop == "":
		if r.Broken != nil || !strings.Contains(fmt.Sprint(r.Hops), p.found) {
			t.Errorf("report of %s, %s: want no broken hop, and %q in %+v", p.name, when, p.found, r)
		}
	case r.Broken == nil:
		t.Errorf("%s, %s: broken hop = none, want a fault: %+v", p.name, when, r)
	case r.Broken.Hop != p.hop || !strings.Contains(r.Broken.Found+r.Broken.Cause, p.found):
		t.Errorf("%s, %s: hop %s, want %s, and in it %q: %+v", p.name, when, r.Broken.Hop, p.hop, p.found, r.Broken)
	}
}

func diagnosis(r doctor.Report) string {
	if r.Broken == nil {
		return "nothing is broken"
	}
	return fmt.Sprintf("%s: %s; found: %s; mend: %q", r.Broken.Hop, r.Broken.Cause, r.Broken.Found, r.Broken.Mend)
}
