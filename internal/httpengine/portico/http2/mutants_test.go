package http2_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var runMutants = flag.Bool("mutants", false, "run the models of server and client against mutants of the packages that they test")

// mutant is a defect.
type mutant struct {
	name  string // the defect and the implementation that had it
	model string // the package whose TestModel finds it
	edits []edit
}

// edit replaces one piece of source by another.
type edit struct{ file, old, new string }

// mutants are deadlocks and leaks that HTTP/2 implementations had, including Go's.
var mutants = []mutant{
	{
		"the server keeps the connection's window of a stream that breaks the protocol (golang/go#40423)", "server",
		[]edit{{"server/frames.go", "case st == nil || fault != nil:\n\t\ttoConn", "case st == nil:\n\t\ttoConn"}},
	},
	{
		"the server keeps the connection's window of DATA on streams that are over (golang/go#28204)", "server",
		[]edit{{"server/frames.go", "case st == nil || fault != nil:\n\t\ttoConn", "case st == nil:\n\tcase fault != nil:\n\t\ttoConn"}},
	},
	{
		"the server keeps the connection's window of bodies that handlers do not read (golang/go#28204)", "server",
		[]edit{{"server/stream.go", "\t_ = st.body.Close()\n", ""}},
	},
	{
		"the server keeps the connection's window of bodies that were not read when the client left", "server",
		[]edit{{"frame/body.go", "\tb.notify()\n\tb.mu.Unlock()\n\tb.reportConsumed(n)\n}\n\n// Buffered", "\tb.notify()\n\tb.mu.Unlock()\n}\n\n// Buffered"}},
	},
	{
		"the server keeps the connection's window of DATA for a body that the handler closed", "server",
		[]edit{{"server/frames.go", "if err := c.returnWindow(nil, unwanted); err != nil {\n\t\t\treturn err\n\t\t}\n", ""}},
	},
	{
		"the server keeps the connection's window of padding", "server",
		[]edit{{"server/frames.go", "toConn, toStream = c.recvWindow.Return(size-len(p)), st.returnWindowLocked(size-len(p))", "toStream = st.returnWindowLocked(size - len(p))"}},
	},
	{
		"the server gives no window of a stream back", "server",
		[]edit{{"server/stream.go", "id, toStream = st.send.ID, st.returnWindowLocked(n)", "id = st.send.ID"}},
	},
	{
		"a request that waits for a handler is forgotten when one is free", "server",
		[]edit{{"server/stream.go", "\t\t\tw.next = next\n", "\t\t\t_ = next\n"}},
	},
	{
		"handlers of streams that were reset do not count (CVE-2023-44487)", "server",
		[]edit{{"server/frames.go", "if c.handling >= c.server.c.MaxConcurrentStreams {", "if c.handling < 0 {"}},
	},
	{
		"a writer sleeps through WINDOW_UPDATE of its stream", "server",
		[]edit{{"frame/writer.go", "\ts.updates += int64(increment)\n\tif s.waiting {", "\ts.updates += int64(increment)\n\tif false {"}},
	},
	{
		"writers sleep through WINDOW_UPDATE of the connection", "server",
		[]edit{{"frame/writer.go", "\tw.maxSeenWindow = max(w.maxSeenWindow, w.window)\n\tw.wakeNext()", "\tw.maxSeenWindow = max(w.maxSeenWindow, w.window)"}},
	},
	{
		"writers sleep through SETTINGS_INITIAL_WINDOW_SIZE", "server",
		[]edit{{"frame/writer.go", "\tif w.initialWindow > before {\n\t\tw.initialWindowGrew()\n\t}\n", "\t_ = before\n"}},
	},
	{
		"a writer sleeps through the end of its stream", "server",
		[]edit{{"frame/writer.go", "\t\ts.err = why\n\t}\n\tif s.waiting {", "\t\ts.err = why\n\t}\n\tif false {"}},
	},
	{
		"the server writes more than the connection's window", "server",
		[]edit{{"frame/flow.go", "\t\tw.window -= int64(n)\n", ""}},
	},
	{
		"a window that is less than nothing is not seen", "server",
		[]edit{{"frame/flow.go", "{ return w.initialWindow + s.updates - s.sent }", "{ return max(1, w.initialWindow+s.updates-s.sent) }"}},
	},
	{
		"whoever has sent what it could wakes none of the others that wait for the connection's window", "server",
		[]edit{{"frame/flow.go", "\tw.wakeNext()\n\treturn p\n", "\treturn p\n"}},
	},
	{
		"a stream that was woken for the connection's window and lacks its own keeps the turn", "server",
		[]edit{{"frame/flow.go", "\t\tw.streamBlocked = append(w.streamBlocked, s)\n\t\tw.wakeNext() // s may have been woken for the connection's window\n", "\t\tw.streamBlocked = append(w.streamBlocked, s)\n"}},
	},
	{
		"whoever writes holds the connection's lock meanwhile (golang/go#32388)", "client",
		[]edit{{"frame/writer.go", "\t\tw.mu.Unlock()\n\t\t_, err := w.conn.Write(*b)", "\t\t_, err := w.conn.Write(*b)\n\t\tw.mu.Unlock()"}},
	},
	{
		"the goroutine that reads waits until its answers are written (golang/go#32388)", "server",
		[]edit{{"frame/writer.go", "\tw.background.Go(func() {\n\t\tw.mu.Lock()\n\t\tdefer w.mu.Unlock()\n\t\t_ = w.drain() // fail was called\n\t})\n",
			"\t_ = w.drain()\n"}},
	},
	{
		"the client gives the connection's window back as responses are read: one that nobody reads stops all (golang/go#16510)", "client",
		[]edit{{"client/stream.go", "\tif !s.ended {\n\t\tincrement = s.recvWindow.Return(n)\n\t}\n\tc.mu.Unlock()",
			"\tif !s.ended {\n\t\tincrement = s.recvWindow.Return(n)\n\t}\n\tback := c.reader.recvWindow.Return(n)\n\tc.mu.Unlock()\n\tif back > 0 {\n\t\t_ = c.w.WriteWindowUpdate(0, back)\n\t}"}, {
			"client/frames.go", "\tif increment := r.recvWindow.Return(n); increment > 0 {",
			"\tgiven := n\n\tif s, _ := r.conn.lookup(f.Stream); s != nil {\n\t\tgiven = 0\n\t}\n\tif increment := r.recvWindow.Return(given); increment > 0 {",
		}},
	},
	{
		"the client keeps the connection's window of responses that were given up (golang/go#40423)", "client",
		[]edit{{"client/frames.go", "\tif increment := r.recvWindow.Return(n); increment > 0 {",
			"\tif s, _ := r.conn.lookup(f.Stream); s == nil {\n\t\tn = 0\n\t}\n\tif increment := r.recvWindow.Return(n); increment > 0 {"}},
	},
	{
		"the client keeps the windows of streams", "client",
		[]edit{{"client/stream.go", "\t\tincrement = s.recvWindow.Return(n)\n\t}\n\tc.mu.Unlock()\n\tif increment > 0 {\n\t\t_ =", "\t\tincrement = 0\n\t}\n\tc.mu.Unlock()\n\tif increment > 0 {\n\t\t_ ="}},
	},
	{
		"a request that was answered early goes on being sent", "client",
		[]edit{{"client/stream.go", "!out.Abort(&s.send, errBodyNotWanted)", "!out.Ended(&s.send)"}},
	},
	{
		"a request that is given up is not reset", "client",
		[]edit{{"client/stream.go", "\t\t_ = out.WriteRSTStream(s.id, reset) //", "\t\t_ = s.id //"}},
	},
	{
		"requests beyond GOAWAY's last stream are reported as lost", "client",
		[]edit{{"client/frames.go", "why := &engine.Error{Kind: engine.Unprocessed, Err: errGoAway}", "why := &engine.Error{Kind: engine.Lost, Err: errGoAway}"}},
	},
	{
		"a request that was not sent is reported as one that may have been", "client",
		[]edit{{"client/stream.go", "s.fail(&engine.Error{Kind: engine.Unsent, Err: err}, noReset)", "s.fail(&engine.Error{Kind: engine.Lost, Err: err}, noReset)"}},
	},
	{
		"a refused request is reported as one that may have been processed", "client",
		[]edit{{"client/stream.go", "kind = engine.Refused", "kind = engine.Reset"}},
	},
	{
		"a limit of streams that was lowered is exceeded by requests that chose their connection before", "client",
		[]edit{{"client/stream.go", "\tcase len(c.streams) >= int(c.maxStreams.Load()):", "\tcase false:"}},
	},
	{
		"requests that GOAWAY leaves are waited for", "client",
		[]edit{{"client/frames.go", "\tfor _, s := range passed {\n\t\ts.fail(why, noReset)\n\t}\n", "\t_, _ = passed, why\n"}},
	},
	{
		"a connection that takes no more stays after its last request", "client",
		[]edit{{"client/conn.go", "return c.draining.Load() && len(c.streams) == 0 && c.err == nil", "return false"}},
	},
}

// apply returns the files with the defect.
func (m *mutant) apply(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, e := range m.edits {
		source, err := os.ReadFile(filepath.FromSlash(e.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), e.old); n != 1 {
			t.Fatalf("%s contains the code to replace %d times, want 1: update the mutant:\n%s", e.file, n, e.old)
		}
		files[e.file] = []byte(strings.Replace(string(source), e.old, e.new, 1))
	}
	return files
}

// The models of server and client find defects of other implementations. Running them takes minutes: use `make mutants`. This test
// checks at once that the mutants still match the source.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			files := m.apply(t)
			if *runMutants {
				m.mustFail(t, files)
			}
		})
	}
}

// mutantTimeout bounds the time to build a mutant and to find its defect.
const mutantTimeout = 10 * time.Minute

func (m *mutant) mustFail(t *testing.T, files map[string][]byte) {
	dir := t.TempDir()
	replace := map[string]string{}
	for name, source := range files {
		from, err := filepath.Abs(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Base(name))
		replace[from] = to
		if err := os.WriteFile(to, source, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), mutantTimeout)
	defer cancel()
	binary := filepath.Join(dir, "model.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "-overlay", filepath.Join(dir, "overlay.json"), "./"+m.model).CombinedOutput(); err != nil {
		t.Fatalf("build of the mutant failed: %v, want no error\n%s", err, out)
	}
	run := exec.CommandContext(ctx, binary, "-test.run=^TestModel$", "-test.timeout=4m", "-rapid.nofailfile", "-rapid.shrinktime=1ms", "-rapid.checks=5000")
	run.Dir = m.model
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatal("model passes with the defect, want a failure")
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "[rapid] failed after") || strings.HasPrefix(line, "panic: a sequence of the model") || strings.HasPrefix(line, "panic: deadlock") {
			t.Logf("found: %s", strings.TrimSpace(line))
			return
		}
	}
	t.Fatalf("model failed for another reason: %v, want a failed sequence\n%s", err, out)
}
