package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/transport"
)

// maxDialled bounds the number of endpoints that are examined.
const maxDialled = 8

// notReachableFromHere describes an endpoint that this machine cannot reach.
const notReachableFromHere = "not reachable from here"

// places returns the addresses to examine, at most maxDialled.
func (x *exam) places() []string {
	if x.spec == nil {
		return nil
	}
	var out []string
	for _, e := range x.spec.Endpoints {
		if !e.Terminating && len(out) < maxDialled {
			out = append(out, e.Address)
		}
	}
	return out
}

// dns resolves the host names among the addresses.
func (x *exam) dns(ctx context.Context) finding {
	places := x.places()
	if places == nil {
		return unknown("where the Service leads is not known")
	}
	resolved := ""
	for _, place := range places {
		host, _, err := net.SplitHostPort(place)
		if err != nil || net.ParseIP(host) != nil {
			continue
		}
		lookup, cancel := context.WithTimeout(ctx, x.cfg.DialTimeout)
		addresses, err := net.DefaultResolver.LookupHost(lookup, host)
		cancel()
		switch {
		case err == nil:
			resolved = host + " is " + strings.Join(addresses, ", ")
		case x.answered(ctx):
			return unknown("the API server resolves " + host + ", this machine does not")
		default:
			return broken("the name "+host+" does not resolve",
				"# HOST is where the extension server is:",
				x.inNamespace("patch", "service", x.object.Spec.Service.Name, "--type=merge", "-p", patch(fields{"spec": fields{"externalName": "HOST"}})),
			).saying(x.sentence(ctx, &net.OpError{Op: "dial", Net: "tcp", Err: err}))
		}
	}
	if resolved == "" {
		return skipped("addresses, no names")
	}
	return ok(resolved)
}

// tcp dials every address from this machine.
func (x *exam) tcp(ctx context.Context) finding {
	places := x.places()
	if len(places) == 0 {
		return unknown("where the Service leads is not known")
	}
	if f, yes := x.tunnel(ctx); yes {
		return f
	}
	errs := make([]error, len(places))
	var wg sync.WaitGroup
	for i, place := range places {
		wg.Go(func() {
			conn, err := x.dial(ctx, place)
			if errs[i] = err; err == nil {
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	for i, place := range places {
		if errs[i] == nil {
			x.dialled = append(x.dialled, place)
		}
	}
	err := errors.Join(errs...)
	if len(x.dialled) > 0 {
		if f, yes := x.disputed(ctx, HopTCP); yes {
			return f
		}
	}
	switch {
	case err == nil:
		return ok("connected to " + strings.Join(places, ", "))
	case len(x.dialled) > 0:
		return ok(fmt.Sprintf("connected to %d of %d endpoints; %s", len(x.dialled), len(places), oneLine(err)))
	}
	return x.undiallable(ctx, places, err)
}

// undiallable decides between an unknown and a broken hop if this machine can dial no address, based on the API
// server's view.
func (x *exam) undiallable(ctx context.Context, places []string, err error) finding {
	where := strings.Join(places, ", ")
	var forbidden *transport.ForbiddenAddressError
	if errors.As(err, &forbidden) {
		return broken(fmt.Sprintf("the Service leads to %s: %s", forbidden.Address.Addr(), forbidden.Why), x.redirectCommands()...).saying(x.sentence(ctx, err))
	}
	if x.answered(ctx) {
		return unknown(where + ": " + notReachableFromHere + ", but the API server gets answers")
	}
	switch accused := x.accused(ctx); accused {
	case HopTCP, HopDNS, "":
	default:
		return unknown(where + ": " + notReachableFromHere + "; the API server got further and blames " + accused)
	}
	// The API server is closer to the pods. A connection refused there is conclusive, even if packets from this
	// machine are dropped.
	if errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(x.availableMessage(ctx), "connection refused") {
		found, fix := x.notListening(ctx, places)
		return broken(found, fix...).saying(x.sentence(ctx, err))
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return broken(fmt.Sprintf("%s completes no connection within %s: a NetworkPolicy or a firewall drops the packets, the machine is gone, or the extension server accepts no connections and its queue of them is full", where, x.cfg.DialTimeout),
			x.inNamespace("get", "networkpolicies"), x.lookAtServer()).saying(x.sentence(ctx, err))
	}
	return broken(where+": "+oneLine(err), append([]string{x.lookAtServer()}, x.redirectCommands()...)...).saying(x.sentence(ctx, err))
}

// redirectCommands returns commands that change the destination of the Service.
func (x *exam) redirectCommands() []string {
	name := x.object.Spec.Service.Name
	switch {
	case x.service.Spec.ExternalName != "":
		return []string{"# HOST is where the extension server is, PORT what it listens on:",
			x.inNamespace("patch", "service", name, "--type=merge", "-p", patch(fields{"spec": fields{"externalName": "HOST"}})),
			Kubectl("patch", "apiservice", x.object.Name, "--type=merge", "-p", `{"spec":{"service":{"port":PORT}}}`)}
	case x.mirrored:
		return []string{"# the Service has no selector; its Endpoints have to name where the extension server is:", x.inNamespace("edit", "endpoints", name)}
	case len(x.service.Spec.Selector) == 0:
		slice := "SLICE"
		if len(x.slices) > 0 {
			slice = x.slices[0].Name
		}
		return []string{"# the Service has no selector; whoever writes its EndpointSlice has to write where the extension server is:",
			x.inNamespace("edit", "endpointslice", slice)}
	}
	index := 0
	for i, p := range x.service.Spec.Ports {
		if p.Port == x.port() {
			index = i
		}
	}
	return []string{"# PORT is the one that the extension server listens on:",
		x.inNamespace("patch", "service", name, "--type=json", "-p", `[{"op":"replace","path":"/spec/ports/`+itoa(int32(index))+`/targetPort","value":PORT}]`)}
}

// dial opens one connection. It refuses the addresses that a front door refuses.
func (x *exam) dial(ctx context.Context, place string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: x.cfg.DialTimeout,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("read dialled address: %w", err)
			}
			return transport.CheckAddress(at)
		},
	}
	return d.DialContext(ctx, "tcp", place)
}

// sentence returns the condition's message for a backend that cannot be reached. It produces the message as the front
// door does, with a request through its transport. It uses fallback if that request succeeds now.
func (x *exam) sentence(ctx context.Context, fallback error) string {
	probed := x.probe(ctx)
	if probed.err == nil {
		probed.err = fallback
	}
	return apiservice.ProbeErrorMessage(x.probeURL(), probed.err)
}

func (x *exam) probeURL() string { return apiservice.ProbeURL(x.object.Spec.Service, x.gv) }

// probe requests the discovery document from the backend directly, once.
func (x *exam) probe(ctx context.Context) answer {
	if x.probed == nil {
		x.probed = new(x.askBackend(ctx, apiservice.DiscoveryPath(x.gv)))
	}
	return *x.probed
}

// askBackend sends a request from this machine to the backend like the front door: with the front proxy's certificate
// if there is one, and otherwise anonymously.
func (x *exam) askBackend(ctx context.Context, path string) answer {
	set := transport.New(transport.Options{
		Certificate: x.cfg.FrontProxy, AllowLoopback: true,
		DialTimeout: x.cfg.DialTimeout, HeaderTimeout: x.cfg.Timeout,
	})
	defer set.Close()
	backend, err := set.Backend(*x.spec)
	if err != nil {
		return answer{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	at, err := url.Parse(x.probeURL())
	if err != nil {
		return answer{err: err}
	}
	at.Path = path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return answer{err: err}
	}
	req.Host = "" // the transport sets the Host that matches the endpoint
	if x.cfg.FrontProxy != nil {
		req.Header.Set("X-Remote-User", "system:kube-aggregator")
		req.Header.Set("X-Remote-Group", "system:masters")
	}
	began := time.Now()
	resp, err := backend.Probe().RoundTrip(req)
	if err != nil {
		return answer{err: err}
	}
	took := time.Since(began)
	a := read(resp)
	a.took = took
	return a
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
