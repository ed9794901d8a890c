package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"portico.dev/internal/pki"
)

// OwnBackend is one of many backends in one process. It has a separate port, certificate and authority.
type OwnBackend struct {
	Port int32
	CA   []byte
}

// OwnBackends starts a process with count backends. The backend at index n serves the group GroupName(n), with
// discovery and OpenAPI documents.
func (y *Environment) OwnBackends(count int) (*Server, []OwnBackend, error) {
	return y.OwnBackendsOf(count, 0)
}

// OwnBackendsOf is OwnBackends with OpenAPI documents of at least openAPIBytes each, all of them different.
func (y *Environment) OwnBackendsOf(count, openAPIBytes int) (*Server, []OwnBackend, error) {
	orders := y.orders
	orders.OwnBackends, orders.OpenAPIBytes = count, openAPIBytes
	s, err := y.childOf("own-backends", orders)
	if err != nil {
		return nil, nil, err
	}
	var all []OwnBackend
	if err := json.Unmarshal([]byte(s.Address), &all); err != nil {
		return nil, nil, fmt.Errorf("read the ports of backends: %w", err)
	}
	s.Address = ""
	return s, all, nil
}

// serveOwnBackends announces a list of OwnBackend instead of an address.
func serveOwnBackends(o *commands, announce announcement) error {
	b := newBackend()
	var all []OwnBackend
	failed := make(chan error)
	for n := range o.OwnBackends {
		own, serve, err := newOwnBackend(n, b, o.OpenAPIBytes)
		if err != nil {
			return err
		}
		all = append(all, own)
		go func() { failed <- serve() }() // until the process exits
	}
	list, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := announce(string(list), b.counts()); err != nil {
		return err
	}
	return <-failed
}

func newOwnBackend(n int, b *backend, openAPIBytes int) (own OwnBackend, serve func() error, err error) {
	authority, err := pki.NewAuthority("authority of " + ServiceOf(n))
	if err != nil {
		return own, nil, err
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{
		CommonName: ServiceOf(n), DNSNames: []string{ServiceOf(n) + "." + Namespace + ".svc"}, Server: true, TTL: 24 * time.Hour,
	})
	if err != nil {
		return own, nil, err
	}
	certificate, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		return own, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return own, nil, err
	}
	s := &http.Server{
		Handler: &ownBackend{backend: b, group: GroupName(n), openAPIBytes: openAPIBytes}, TLSConfig: pki.ServerConfig(certificate), ReadHeaderTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 250},
	}
	own = OwnBackend{Port: int32(l.Addr().(*net.TCPAddr).Port), CA: authority.PEM()}
	return own, func() error { return s.ServeTLS(l, "", "") }, nil
}

// ownBackend also serves an OpenAPI document of its group, like backends in Go. The document never changes.
type ownBackend struct {
	*backend
	group        string
	openAPIBytes int
}

func (b *ownBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := "/openapi/v3/apis/" + b.group + "/v1"
	switch {
	case r.URL.Path == "/openapi/v3":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"paths":{"apis/%s/v1":{"serverRelativeURL":"%s?hash=%s"}}}`, b.group, path, ownHash)
	case r.URL.Path == path:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", `"`+ownHash+`"`)
		if slices.Contains(r.Header.Values("If-None-Match"), `"`+ownHash+`"`) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write([]byte(openAPIOf(b.group, b.openAPIBytes)))
	default:
		b.backend.ServeHTTP(w, r)
	}
}

// ownHash is the hash in the URL of each document, which never changes.
const ownHash = "A1B2C3D4E5F60718293A4B5C6D7E8F90"

// ownFields is the number of fields of the kind in each document. It results in about 25 KiB, as for a group with two
// or three kinds.
const ownFields = 120

// openAPIOf returns an OpenAPI v3 document of at least the given size. Additional words come from a pseudorandom
// sequence seeded with the group, because repeated words would compress to nothing.
func openAPIOf(group string, atLeast int) string {
	kind := group + ".v1.Thing"
	words := rand.New(rand.NewPCG(uint64(len(group)), uint64(crc32.ChecksumIEEE([]byte(group)))))
	var fields strings.Builder
	for n := 0; n < ownFields || fields.Len() < atLeast; n++ {
		if n > 0 {
			fields.WriteByte(',')
		}
		described := strings.Repeat("described here, ", n%4)
		if n >= ownFields {
			described = fmt.Sprintf("as %x is to %x, ", words.Uint32(), words.Uint32())
		}
		fmt.Fprintf(&fields, `"field%03d":{"type":"string","description":"Field %d says something about the thing that is %s. It may be empty, which means that the server chooses, and then it is set in the status."}`, n, n, described)
	}
	operation := func(verb, action string) string {
		return fmt.Sprintf(`%q:{"tags":[%q],"description":"%s things","operationId":"%sThing%d","responses":{"200":{"description":"OK","content":{"application/json":{"schema":{"$ref":"#/components/schemas/%s"}}}}},`+
			`"x-kubernetes-action":%q,"x-kubernetes-group-version-kind":{"group":%q,"version":"v1","kind":"Thing"}}`, verb, group, action, action, len(verb), kind, action, group)
	}
	paths := fmt.Sprintf(`"/apis/%[1]s/v1/namespaces/{namespace}/things":{%[2]s,%[3]s},"/apis/%[1]s/v1/namespaces/{namespace}/things/{name}":{%[2]s}`,
		group, operation("get", "list"), operation("post", "create"))
	return fmt.Sprintf(`{"openapi":"3.0.0","info":{"title":"Bench","version":"v1"},"paths":{%s},"components":{"schemas":{%q:{"type":"object","properties":{%s},`+
		`"x-kubernetes-group-version-kind":[{"group":%q,"version":"v1","kind":"Thing"}]}}}}`, paths, kind, fields.String(), group)
}

// RegisterOwn creates a Service and an APIService for each of the backends at the rate perSecond, and waits until all
// are Available.
func (d *FrontDoor) RegisterOwn(ctx context.Context, all []OwnBackend, perSecond int) error {
	began := time.Now()
	err := Concurrency(ctx, registrars, 0, len(all), func(ctx context.Context, n int) error {
		if err := Pause(ctx, time.Until(began.Add(time.Second*time.Duration(n)/time.Duration(perSecond)))); err != nil {
			return err
		}
		return d.RegisterAt(ctx, ServiceOf(n), all[n].Port, all[n].CA)
	})
	if err != nil {
		return err
	}
	return d.Register(ctx, 0, 0) // waits only
}
