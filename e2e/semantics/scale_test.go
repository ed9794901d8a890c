package semantics

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// resident is how much memory the front door has in use, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", front.process.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		t.Fatal("/proc/PID/status has no VmRSS, want one")
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

const (
	manyObjects = 10_000
	// mostGrowth is the maximum memory for 10,000 objects of 1 KB and lists of all of them. They exist three times: in etcd's
	// pages, in the watch cache, and in the unsent part of a list. Under such a load the heap may grow to four times the live
	// data between two garbage collections (internal/run/memory).
	mostGrowth = 400 << 20
	// mostCreep is the maximum additional memory for repeated equal lists.
	mostCreep = 96 << 20
)

// Ten thousand objects of a kilobyte are listed in pages and at once, repeatedly, in memory that does not grow with the number
// of lists.
func TestTenThousandObjects(t *testing.T) {
	s := configMaps(t, "many")
	empty := resident(t)
	value := strings.Repeat("x", 1024)
	var writing sync.WaitGroup
	work := make(chan int)
	for range 16 {
		writing.Go(func() {
			for n := range work {
				body := fmt.Appendf(nil, `{"metadata":{"name":"m-%05d","labels":{"on":"shelf"}},"data":{"k":"%s"}}`, n, value)
				if a := call(t, http.MethodPost, s.path, body); a.code != http.StatusCreated {
					t.Errorf("Create of object %d = %s, want 201", n, a.head())
				}
			}
		})
	}
	for n := range manyObjects {
		work <- n
	}
	close(work)
	writing.Wait()
	count := func(body []byte) (n int, token string) {
		t.Helper()
		var list struct {
			Metadata struct{ Continue string }
			Items    []json.RawMessage
		}
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items), list.Metadata.Continue
	}
	round := func() {
		t.Helper()
		for _, at := range []string{"", "0"} {
			if n, _ := count(call(t, http.MethodGet, s.path+query("labelSelector", "on", "resourceVersion", at), nil).want(http.StatusOK).body); n != manyObjects {
				t.Fatalf("list with the resourceVersion %q has %d objects, want %d", at, n, manyObjects)
			}
		}
		total, pages := 0, 0
		for token := ""; ; pages++ {
			body := call(t, http.MethodGet, s.path+query("labelSelector", "on", "limit", "1000", "continue", token), nil).want(http.StatusOK).body
			n, next := count(body)
			total += n
			if token = next; token == "" {
				break
			}
		}
		if total != manyObjects || pages < manyObjects/1000-1 {
			t.Fatalf("%d pages have %d objects, want %d", pages, total, manyObjects)
		}
	}
	round()
	once := resident(t)
	for range 2 {
		round()
	}
	often := resident(t)
	t.Logf("resident: %d MiB empty, %d MiB with %d objects, %d MiB after more lists", empty>>20, once>>20, manyObjects, often>>20)
	if once-empty > mostGrowth {
		t.Errorf("growth = %d MiB for %d objects, want at most %d MiB", (once-empty)>>20, manyObjects, mostGrowth>>20)
	}
	if often-once > mostCreep {
		t.Errorf("growth for repeated lists = %d MiB, want at most %d", (often-once)>>20, mostCreep>>20)
	}
}

const (
	manyWatchers = 1_000
	watchersOf   = 100 // share a connection
	manyEvents   = 30
)

// A thousand watchers of one resource each see every event, in its order.
func TestAThousandWatchers(t *testing.T) {
	s := configMaps(t, "watched-by-many")
	from := s.put("star").GetResourceVersion()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var opened, watching sync.WaitGroup
	var clients []*http.Client
	opened.Add(manyWatchers)
	path := front.config.Host + s.path + query("watch", "true", "resourceVersion", from, "labelSelector", "on")
	for n := range manyWatchers {
		if n%watchersOf == 0 {
			clients = append(clients, ownConnection(t))
		}
		client := clients[len(clients)-1]
		watching.Go(func() {
			if err := watchAll(ctx, client, path, opened.Done); err != nil {
				t.Errorf("watcher %d: %v, want no error", n, err)
			}
		})
	}
	opened.Wait()
	for n := range manyEvents {
		s.touch("star", n)
	}
	watching.Wait()
}

// ownConnection returns a client that shares no connection with any other client.
func ownConnection(t *testing.T) *http.Client {
	t.Helper()
	config := rest.CopyConfig(front.config)
	dialer := &net.Dialer{}
	config.Dial = dialer.DialContext // a transport with a dialer is not shared between clients
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// watchAll reads events until it has received all of them in order.
func watchAll(ctx context.Context, client *http.Client, path string, opened func()) error {
	once := sync.OnceFunc(opened)
	defer once()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	once()
	if response.StatusCode != http.StatusOK {
		return errText(response.Status)
	}
	lines := json.NewDecoder(response.Body)
	for n := range manyEvents {
		var line json.RawMessage
		if err := lines.Decode(&line); err != nil {
			return fmt.Errorf("before event %d: %w", n, err)
		}
		if want := fmt.Appendf(nil, `"annotations":{"n":"%d"}`, n); !bytes.HasPrefix(line, []byte(`{"type":"MODIFIED"`)) || !bytes.Contains(line, want) {
			return fmt.Errorf("event %d is %.300s", n, line)
		}
	}
	return nil
}
