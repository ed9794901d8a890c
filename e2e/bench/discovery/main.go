package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"portico.dev/internal/pki"
)

func main() {
	out := flag.String("out", ".", "directory for discovery.md and discovery.json")
	child := flag.Bool("front", false, "be the front door (the program starts itself with this)")
	quick := flag.Bool("quick", false, "stretches of a tenth of the length, to see whether everything works")
	flag.Parse()
	err := runFront
	if !*child {
		err = func() error { return measure(*out, *quick) }
	}
	if err := err(); err != nil {
		fmt.Fprintln(os.Stderr, "discovery:", err)
		os.Exit(1)
	}
}

// limit bounds the duration of the whole run.
const limit = 5 * time.Minute

// intervals are the durations of measurements. A quick run shortens them and shows only that the program works.
type intervals struct{ rest, load time.Duration }

func measure(out string, quick bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s := intervals{rest: 2 * time.Second, load: 2500 * time.Millisecond}
	if quick {
		s = intervals{rest: s.rest / 10, load: s.load / 10}
	}
	keys, err := newKeys()
	if err != nil {
		return err
	}
	b, err := startBackends(keys.backend)
	if err != nil {
		return err
	}
	report := newReport()
	for _, count := range []int{10, 100, 1000} {
		err = errors.Join(err, report.measure(ctx, b, keys, count, s))
	}
	if err := errors.Join(err, b.close()); err != nil {
		return err
	}
	report.finish()
	return report.write(out)
}

// keys holds the certificates of both sides.
type keys struct {
	roots             []byte
	backend           *pki.KeyPair
	certificate, keyP []byte
}

func newKeys() (*keys, error) {
	authority, err := pki.NewAuthority("bench")
	if err != nil {
		return nil, err
	}
	k := &keys{roots: authority.PEM()}
	certificate, key, err := authority.Issue(pki.Leaf{CommonName: "backend", DNSNames: []string{"backend.example.com"}, Server: true, TTL: time.Hour})
	if err != nil {
		return nil, err
	}
	if k.backend, err = pki.StaticKeyPair(certificate, key); err != nil {
		return nil, err
	}
	k.certificate, k.keyP, err = authority.Issue(pki.Leaf{
		CommonName: "front", DNSNames: []string{"front.example.com"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, TTL: time.Hour,
	})
	return k, err
}

// measure runs all measurements against one front door with count APIServices.
func (r *report) measure(ctx context.Context, b *backends, k *keys, count int, s intervals) (err error) {
	front, stop, err := startFront(ctx, &plan{
		Count: count, Alive: b.alive.Addr().String(), Hung: b.hung.Addr().String(), Dead: b.dead,
		Roots: k.roots, Certificate: k.certificate, Key: k.keyP,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	l, err := newLoad(front, k.roots)
	if err != nil {
		return err
	}
	defer l.close()
	for _, c := range []struct {
		name       string
		hung, dead int
	}{{"healthy", 0, 0}, {"half dead", 0, count / 2}, {"all hung", count, 0}} {
		row, err := l.situation(ctx, c.hung, c.dead, s)
		if err != nil {
			return fmt.Errorf("%d APIServices, %s: %w", count, c.name, err)
		}
		row.APIServices, row.Backends = count, c.name
		r.Rows = append(r.Rows, row)
	}
	if count == 1000 {
		if r.Pairs, err = l.pairs(ctx, 50, s); err != nil {
			return err
		}
	}
	changes, err := l.changes(ctx, s)
	changes.APIServices = count
	r.Changes = append(r.Changes, changes)
	return err
}

// situation measures all documents in one state of the backends.
func (l *load) situation(ctx context.Context, hung, dead int, s intervals) (row row, err error) {
	if err := l.become(ctx, hung, dead); err != nil {
		return row, err
	}
	if row.Idle, err = l.idle(ctx, s.rest); err != nil {
		return row, err
	}
	for range 3 { // alternately, so that other load on the machine affects all of them
		for _, m := range []struct {
			path string
			into *sample
		}{
			{"/apis", &row.APIs}, {"/bytes/apis", &row.APIsBytes}, {"/openapi/v3", &row.OpenAPI}, {"/bytes/openapi/v3", &row.OpenAPIBytes},
		} {
			turn, err := l.run(ctx, m.path, s.load/4)
			if err != nil {
				return row, err
			}
			*m.into = m.into.join(turn)
		}
	}
	var u usage
	err = l.control(ctx, "/usage?memory=1", &u)
	row.Heap, row.RSS, row.Peak = u.Heap, u.RSS, u.Peak
	return row, err
}

func (l *load) become(ctx context.Context, hung, dead int) error {
	return l.control(ctx, fmt.Sprintf("/become?hung=%d&dead=%d", hung, dead), nil)
}

// idle returns the share of one core that the front door uses without requests.
func (l *load) idle(ctx context.Context, d time.Duration) (float64, error) {
	before, err := l.usage(ctx)
	if err != nil {
		return 0, err
	}
	time.Sleep(d)
	after, err := l.usage(ctx)
	return float64(after.CPU-before.CPU) / float64(d), err
}

// pairs alternates between healthy backends and backends of which some hang.
func (l *load) pairs(ctx context.Context, hanging int, s intervals) ([]pair, error) {
	var all []pair
	for i := range 16 {
		var p pair
		turns := []func() error{
			func() error { return l.turn(ctx, 0, s, &p.Healthy) },
			func() error { return l.turn(ctx, hanging, s, &p.Hung) },
		}
		if i%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
	return all, nil
}

func (l *load) turn(ctx context.Context, hanging int, s intervals, into *sample) error {
	if err := l.become(ctx, hanging, 0); err != nil {
		return err
	}
	time.Sleep(s.rest / 4)
	var err error
	*into, err = l.run(ctx, "/apis", s.load)
	return err
}

// changes measures the time until a change is visible.
func (l *load) changes(ctx context.Context, s intervals) (c changes, err error) {
	if err := l.become(ctx, 0, 0); err != nil {
		return c, err
	}
	time.Sleep(3 * s.rest) // until the backends that hung have served all their documents
	var f flips
	if err := l.control(ctx, "/flip?n=20", &f); err != nil {
		return c, err
	}
	slices.Sort(f.Took)
	c.FlipCPU, c.FlipP50, c.FlipMax = f.CPU, quantile(f.Took, 0.5), f.Took[len(f.Took)-1]
	var appeared []time.Duration
	for range 10 {
		var took time.Duration
		if err := l.control(ctx, "/append", &took); err != nil {
			return c, err
		}
		appeared = append(appeared, took)
	}
	slices.Sort(appeared)
	c.AppearP50, c.AppearMax = quantile(appeared, 0.5), appeared[len(appeared)-1]
	return c, nil
}

// startFront starts this program again as the front door. stop ends it and waits.
func startFront(ctx context.Context, p *plan) (front addresses, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return front, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-front")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return front, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return front, nil, err
	}
	if err := cmd.Start(); err != nil {
		return front, nil, err
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	err = json.NewEncoder(in).Encode(p)
	if err == nil {
		err = json.NewDecoder(out).Decode(&front)
	}
	if err != nil {
		return front, nil, errors.Join(err, stop())
	}
	return front, stop, nil
}
