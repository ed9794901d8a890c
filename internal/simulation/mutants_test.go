package simulation

import (
	"regexp"
	"testing"
	"time"

	"portico.dev/internal/run/mutants"
)

// defects are lines of the product that the simulation must not accept, one or more for each rule.
var defects = []mutants.Mutant{
	// A request that succeeded reached a backend once.
	mutants.New("POST is repeated", "../transport/attempts.go",
		"	return a.body == nil && a.buffered == nil && (a.request.Method == http.MethodGet || a.request.Method == http.MethodHead)",
		"	return a.request.Method != http.MethodPatch"),
	mutants.New("a request that may have arrived counts as not processed", "../transport/attempts.go",
		"	case f.unprocessed:\n		if a.count",
		"	case f.unprocessed, f.lost:\n		if a.count"),

	// A request carries the identity of its user.
	mutants.New("requests share a header", "../proxy/header.go",
		"func (x *exchange) requestHeader() http.Header {\n	client := x.r.Header\n	out := make(http.Header, len(client)+len(x.values.room))",
		"var oneHeader = http.Header{}\n\nfunc (x *exchange) requestHeader() http.Header {\n	client := x.r.Header\n	out := oneHeader\n	clear(out)"),
	mutants.New("a replica forwards requests as its own", "../replicas/peers/statement.go",
		"		Name: u.GetName(), UID",
		"		Name: p.config.Name, UID"),
	mutants.New("the first client certificate is remembered for all", "../auth/authn/credentials.go",
		"	u, err := certificateUser(chain[0])\n	return certificateIdentity{user: u, any: true, kind: KindCertificate}, err\n}",
		"	if last := lastIdentity.Load(); last != nil {\n		return *last, nil\n	}\n	u, err := certificateUser(chain[0])\n	lastIdentity.Store(&certificateIdentity{user: u, any: true, kind: KindCertificate})\n	return certificateIdentity{user: u, any: true, kind: KindCertificate}, err\n}\n\nvar lastIdentity atomic.Pointer[certificateIdentity]"),

	// Everything converges.
	mutants.New("etcd stays lost", "../store/quorum.go",
		"		q.having, q.lose = context.WithCancel(context.Background())\n		q.wake()\n	}\n	q.ticks, q.lastResponse", "		q.wake()\n	}\n	q.ticks, q.lastResponse"),
	mutants.New("a watch of etcd resumes one revision late", "../store/quorum.go", "clientv3.WithRev(next))...)", "clientv3.WithRev(next+1))...)"),

	// No watch skips or reorders events.
	mutants.New("a shared watch repeats events after a break", "../routes/sharedwatch/stream.go",
		"		version = t.latest()\n		if more", "		if more"),
	mutants.New("a shared watch repeats the event from which it resumes", "../routes/sharedwatch/history.go",
		"			return cursor{place: h.first + int64(i) + 1}, nil", "			return cursor{place: h.first + int64(i)}, nil"),
	mutants.New("a shared watch begins after the resourceVersion of its client", "../routes/sharedwatch/history.go",
		"	if err != nil || order < 0 {\n		return cursor{}, errNotPlaced",
		"	if err != nil || order < 0 && false {\n		return cursor{}, errNotPlaced"),

	// A watch sends an event at once.
	mutants.New("relayed watches are not flushed", "../proxy/response.go",
		"	if x.streams(resp) {\n		flush = flusher(x.w)\n	}",
		"	_ = x.streams"),

	// Deletions.
	mutants.New("namespaces do not wait for an unavailable server", "../lifecycle/namespaces/plan.go",
		"	return !gv.Current && !gv.NonPersistent && (!gv.Known || len(gv.Resources) > 0)", "	return false"),
	mutants.New("a namespace does not name the server that it waits for", "../lifecycle/namespaces/plan.go",
		"unavailablePrefix(gv.GroupVersion, gv.APIService) + gv.Reason", "gv.Reason"),
	mutants.New("an owner at an unavailable server counts as deleted", "../lifecycle/garbage/owner.go",
		`	return ownerPresent, &undecidedError{gv, "is not available: " + gv.Reason}`, "	return ownerGone, nil"),
	mutants.New("one deleted owner suffices", "../lifecycle/garbage/process.go",
		"	switch {\n	case len(states.present) > 0 && len(states.gone)+len(states.waiting) > 0:",
		"	if len(states.gone) > 0 {\n		states.present = nil\n	}\n	switch {\n	case len(states.present) > 0 && len(states.gone)+len(states.waiting) > 0:"),
	mutants.New("orphans keep their references", "../lifecycle/garbage/finalizers.go",
		"	for _, d := range dependents {\n		if err := t.removeOwner", "	for _, d := range dependents[:0] {\n		if err := t.removeOwner"),

	mutants.New("debts are not cleaned up", "../lifecycle/debts/backend.go", "	return deleteObject\n", "	return keepObject\n"),
	mutants.New("a namespace is removed without a debt", "../lifecycle/namespaces/blocked.go",
		"		if !ok {\n			d = debts",
		"		if !ok && false {\n			d = debts"),
	mutants.New("a deletion waits for dependents that do not exist", "../lifecycle/garbage/finalizers.go",
		"	if blocked {\n",
		"	if blocked || true {\n"),

	// An object is not deleted while its owner exists.
	mutants.New("an owner whose kind is not served counts as deleted", "../lifecycle/garbage/owner.go",
		`		return ownerPresent, &undecidedError{gv, "does not serve " + ref.Kind}`,
		"		return ownerGone, nil"),
	mutants.New("one answer suffices that an owner does not exist", "../lifecycle/garbage/owner.go",
		"	if t.rules.confirmTwice(gv) {",
		"	if false {"),
	mutants.New("an owner counts as deleted before its resource has been listed", "../lifecycle/garbage/owner.go",
		"	if !t.rules.watchComplete(t.graph, gr, resource) {",
		"	if false {"),

	// What reports a backend agrees.
	mutants.New("no Event when a backend returns", "../apiservice/events.go",
		"was == is || after.Spec.Service == nil", "was == is || is || after.Spec.Service == nil"),
	mutants.New("a delayed status is never written", "../apiservice/status.go",
		"	if wait > 0 {\n		s.queue.AddAfter(name, wait)", "	if wait < 0 {\n		s.queue.AddAfter(name, wait)"),

	mutants.New("the metric reports every backend as available", "../apiservice/entry.go",
		"		c.cfg.Metrics.Set(after.Name, after.Available())", "		c.cfg.Metrics.Set(after.Name, true)"),

	mutants.New("routes do not follow the verdicts of other replicas", "../apiservice/replicas.go",
		"		if !r.Available() {\n			c.queue.Add(queueItem{apiService: r.Name}) // updates", "		if r.Available() {\n			c.queue.Add(queueItem{apiService: r.Name}) // updates"),
	mutants.New("the status does not follow the verdicts of other replicas", "../apiservice/replicas.go",
		"		n.names = n.names.Union(differences(c.decoded[replica], verdicts))\n",
		""),
	mutants.New("the status is the verdict of one replica", "../apiservice/replicas.go",
		"	verdicts := c.verdicts(r)\n	if r.Local",
		"	verdicts := c.verdicts(r)[:1]\n	if r.Local"),
	mutants.New("the verdicts of a replica that has left remain", "../apiservice/replicas.go",
		"		return !alive\n	})",
		"		return !alive && false\n	})"),
	mutants.New("a refusal names another APIService", "../dispatch/unavailable.go",
		"		Name:   name,\n",
		"		Name:   kind + name,\n"),

	// Gateways.
	mutants.New("a gateway leads after it has lost the Lease", "../gateway/election.go",
		"OnStoppedLeading: func() { e.set(false) },", "OnStoppedLeading: func() {},"),
	mutants.New("a gateway that lost the Lease never leads again", "../gateway/election.go",
		"elector.Run(ctx) // returns when the Lease is lost", "elector.Run(ctx)\n		<-ctx.Done()"),
	mutants.New("the verdict of a dead gateway counts forever", "../gateway/peers.go", "dead: 35 * time.Second", "dead: 35 * time.Hour"),
	// Upgraded connections.
	mutants.New("an upgraded connection stays open when one side has ended", "../proxy/tunnel.go",
		"	defer t.close()\n	b := buffers", "	b := buffers"),
	mutants.New("bytes that arrive with a request for an upgrade are lost", "../proxy/upgrade.go",
		"		client = &bufferedConn{Conn: conn, reader: buffered.Reader}", "		client = conn"),
	mutants.New("bytes that arrive with the response to an upgrade are lost", "../proxy/upgrade.go",
		"	return &bufferedConn{Conn: conn, reader: reader}, resp, nil", "	return &bufferedConn{Conn: conn, reader: bufio.NewReader(conn)}, resp, nil"),

	// Nothing stays charged.
	mutants.New("a body that was buffered for a backend stays charged", "../transport/attempts.go",
		"		defer b.set.replays.give(r.ContentLength)\n", ""),
	mutants.New("a body that was kept for a retry stays charged", "../transport/replay.go",
		"	p.done = true\n	p.freeLocked()\n", "	p.done = true\n"),
	mutants.New("a body for a local group stays charged", "../server/local.go", "			defer h.release()\n", ""),

	// Discovery agrees with the verdict, and follows an APIService.
	mutants.New("a server that stores nothing becomes Stale", "../discovery/freshness.go",
		"	case !slices.ContainsFunc(rec.last.Resources, holdsNamespaced), r.",
		"	case r."),
	mutants.New("discovery forgets the resources of an unavailable server", "../discovery/freshness.go",
		"	if rec.last == nil || rec.last.UID != r.UID {\n		return nil",
		"	if rec.last == nil || rec.last.UID != r.UID || !r.Available {\n		return nil"),
	mutants.New("a changed APIService keeps its resources", "../discovery/freshness.go",
		" && rec.last.Revision == r.Revision && ",
		" && "),
	mutants.New("the ETag of discovery ignores its freshness", "../discovery/documents.go",
		"respond.Hash(asJSON)",
		`respond.Hash(bytes.ReplaceAll(asJSON, []byte("Stale"), []byte("Current")))`),

	// Goroutines do not accumulate, and nothing is released twice.
	mutants.New("each probe leaves a goroutine", "../apiservice/probe.go",
		"	digest := p.hashBody(resp.Body, cancel)", "	go func() { select {} }()\n	digest := p.hashBody(resp.Body, cancel)"),
	mutants.New("seats are released twice", "../fairness/reservation.go",
		"	if !r.Admitted || r.released {",
		"	if !r.Admitted {"),
	mutants.New("places at a backend are not released", "../transport/shares.go",
		"	p.backend = nil\n	if p.stalled {",
		"	p.backend = nil\n	return\n	if p.stalled {"),
	mutants.New("places at a backend are released twice", "../transport/shares.go",
		"	p.backend = nil\n	if p.stalled {",
		"	if p.stalled {"),
}

var (
	foundBy = regexp.MustCompile(`seed (\d+) violates`)
	broken  = regexp.MustCompile(`rule "[^"]*": .{0,200}`)
)

func TestMutants(t *testing.T) {
	mutants.TestWith(t, defects, mutants.Options{
		Flags: []string{"-run", "TestHistories", "-seeds", "1000", "-shrink=false", "-failfast"}, Timeout: 12 * time.Minute,
		Found: func(t *testing.T, output string) {
			t.Logf("%s: %s", foundBy.FindString(output), broken.FindString(output))
		},
	})
}
