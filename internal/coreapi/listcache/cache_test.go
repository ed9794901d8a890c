package listcache

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func configMap(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
}

// found returns the cached encodings of objects in a table.
func found(t *table, ids ...identity) []string {
	data := make([][]byte, len(ids))
	t.find(ids, data)
	var texts []string
	for _, d := range data {
		texts = append(texts, string(d))
	}
	return texts
}

func TestEncodingIsFoundOnlyForItsObject(t *testing.T) {
	c := New()
	objects, _ := c.table(tableKey{"a", form{}})
	one := configMap("one", "1")
	objects.keep(identify(one), []byte("first"))
	shallow, deep, later := *one, one.DeepCopy(), *one
	later.ResourceVersion = "2"
	if got := found(objects, identify(one), identify(&shallow), identify(deep), identify(&later), identify(&corev1.ConfigMap{})); fmt.Sprint(got) != "[first first   ]" {
		t.Errorf("found %q, want \"first\" for the object and its shallow copy only", got)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "1", "managedFields": []any{map[string]any{}}}}}
	objects.keep(identify(u), []byte("custom"))
	if got := found(objects, identify(u), identify(u.DeepCopy()), identify(&unstructured.Unstructured{})); fmt.Sprint(got) != "[custom  ]" {
		t.Errorf("found %q, want \"custom\" for the object only", got)
	}
	other, _ := c.table(tableKey{"b", form{}})
	if got := found(other, identify(one)); got[0] != "" {
		t.Errorf("the table of another storage has %q, want no encoding", got)
	}
}

func TestFirstListIsNotCached(t *testing.T) {
	c := New()
	key := tableKey{"a", form{}}
	if _, keep := c.table(key); keep {
		t.Error("the first list would be kept, want not kept")
	}
	if _, keep := c.table(key); !keep {
		t.Error("the second list would not be kept, want kept")
	}
	c.drop()
	c.drop()
	if _, keep := c.table(key); keep {
		t.Error("the first list after two drops would be kept, want not kept")
	}
}

func TestUnusedEncodingsAreDropped(t *testing.T) {
	c := New()
	key := tableKey{"a", form{}}
	objects, _ := c.table(key)
	used, unused := configMap("used", "1"), configMap("unused", "1")
	objects.keep(identify(used), []byte("1"))
	objects.keep(identify(unused), []byte("2"))
	c.drop()
	c.table(key)
	found(objects, identify(used))
	c.drop()
	if got := found(objects, identify(used), identify(unused)); fmt.Sprint(got) != "[1 ]" {
		t.Errorf("found %q, want the encoding of the used object only", got)
	}
	c.drop()
	c.drop()
	if got := found(objects, identify(used)); got[0] != "" || c.Bytes() != 0 || len(c.tables) != 0 {
		t.Errorf("after two drops: found %q, %d bytes in %d tables, want an empty cache", got, c.Bytes(), len(c.tables))
	}
	// A list in flight keeps an encoding in the dropped table.
	objects.keep(identify(used), []byte("1"))
	if c.Bytes() != 0 {
		t.Errorf("%d bytes in a dropped table, want 0", c.Bytes())
	}
}

func TestCacheSizeIsBounded(t *testing.T) {
	c := New()
	c.limit.Store(100_000)
	objects, _ := c.table(tableKey{"a", form{}})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 100 {
				objects.keep(identify(configMap(fmt.Sprint(i, j), "1")), make([]byte, 1000))
			}
		})
	}
	all.Wait()
	if got := c.Bytes(); got > 100_000 || got < 90_000 || len(objects.entries) != int(got/(1000+entryOverhead)) {
		t.Errorf("%d bytes in %d entries, want between 90000 and 100000 bytes", got, len(objects.entries))
	}
	same := configMap("same", "1")
	c.limit.Store(1 << 20)
	before := c.Bytes()
	for range 10 {
		objects.keep(identify(same), make([]byte, 1000))
	}
	if got := c.Bytes() - before; got != 1000+entryOverhead {
		t.Errorf("one object uses %d bytes, want %d", got, 1000+entryOverhead)
	}
}

// recorder counts writes.
type recorder struct {
	*httptest.ResponseRecorder
	largest, writes int
}

func (r *recorder) Write(p []byte) (int, error) {
	r.largest, r.writes = max(r.largest, len(p)), r.writes+1
	return r.ResponseRecorder.Write(p)
}

func FuzzOutputEqualsInput(f *testing.F) {
	f.Add(uint32(10), uint32(20_000), false)
	f.Add(uint32(70_000), uint32(3), false)
	f.Add(uint32(65_536), uint32(2), true)
	f.Add(uint32(1), uint32(131_072), true)
	f.Add(uint32(1), uint32(131_073), true)
	f.Add(uint32(300_000), uint32(1), true)
	b := newBuffers()
	f.Fuzz(func(t *testing.T, size, count uint32, compress bool) {
		size, count = size%400_000, count%150_000
		if uint64(size)*uint64(count) > 1<<21 {
			t.Skip("too much")
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if compress {
			r.Header.Set("Accept-Encoding", "gzip")
		}
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		out := b.output(w, r)
		piece := []byte(strings.Repeat("0123456789", int(size)/10+1))[:size]
		for range count {
			out.write(piece)
		}
		out.close()
		out.release()
		got := w.Body.Bytes()
		if zipped := w.Header().Get("Content-Encoding") == "gzip"; zipped != (compress && int(size*count) > gzipThreshold) {
			t.Fatalf("%d bytes are compressed: %v, want compression only above %d bytes if requested", size*count, zipped, gzipThreshold)
		} else if zipped {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		} else if !compress && (w.largest > chunk || w.writes > int(size*count)/chunk+2) {
			t.Errorf("%d bytes in %d writes of at most %d bytes, want chunks of %d bytes", size*count, w.writes, w.largest, chunk)
		}
		if !bytes.Equal(got, bytes.Repeat(piece, int(count))) {
			t.Errorf("output of %d bytes differs from the input, want the input", len(got))
		}
	})
}

func TestUnsupportedListShapesFallBackToAPIServer(t *testing.T) {
	for name, body := range map[string]string{
		"no place":    `{"kind":"List","apiVersion":"v1"}`,
		"two places":  `{"kind":"List","apiVersion":"v1","items":[],"more":{"items":[]}}`,
		"indented":    "{\n \"kind\": \"List\",\n \"apiVersion\": \"v1\",\n \"items\": []}",
		"no kind":     `{"items":[]}`,
		"not JSON":    `items`,
		"a Status":    `{"kind":"Status","apiVersion":"v1","items":[]`,
		"too long":    `{"kind":"List","apiVersion":"v1","items":[],"x":"` + strings.Repeat("x", maxFrame) + `"}`,
		"other meta":  `{"kind":"Other","apiVersion":"meta.k8s.io/v1","items":[]}`,
		"other table": `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			serve := serveList(t, func(w http.ResponseWriter, r *http.Request, list *corev1.ConfigMapList) {
				calls++
				if calls == 2 {
					if len(list.Items) != fewest {
						t.Errorf("the second list has %d objects, want %d", len(list.Items), fewest)
					}
					_, _ = w.Write([]byte("the library's"))
					return
				}
				if len(list.Items) != 0 {
					t.Errorf("the first list has %d objects, want 0", len(list.Items))
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(body))
			})
			if got := serve(); calls != 2 || got.Body.String() != "the library's" {
				t.Errorf("after %d calls: %d %q, want 2 calls and the body of the second", calls, got.Code, got.Body)
			}
		})
	}
	t.Run("an error", func(t *testing.T) {
		serve := serveList(t, func(w http.ResponseWriter, r *http.Request, _ *corev1.ConfigMapList) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotAcceptable)
			_, _ = w.Write([]byte(`{"kind":"Status"}`))
		})
		if got := serve(); got.Code != http.StatusNotAcceptable || got.Body.String() != `{"kind":"Status"}` {
			t.Errorf("response = %d %q, want 406 and the Status", got.Code, got.Body)
		}
	})
	t.Run("a short list", func(t *testing.T) {
		list := &corev1.ConfigMapList{Items: make([]corev1.ConfigMap, fewest-1)}
		(&taken{request: listRequest()}).takeTyped(Source{}, list)
		if len(list.Items) != fewest-1 {
			t.Errorf("the list has %d objects after takeTyped, want %d", len(list.Items), fewest-1)
		}
	})
}

func listRequest() *apirequest.RequestInfo {
	return &apirequest.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "configmaps"}
}

// serveList serves a list of config maps. answer is the handler after Take.
func serveList(t *testing.T, answer func(http.ResponseWriter, *http.Request, *corev1.ConfigMapList)) func() *httptest.ResponseRecorder {
	handler := New().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := &corev1.ConfigMapList{Items: make([]corev1.ConfigMap, fewest)}
		Take(r.Context(), Source{Storage: t, Resource: schema.GroupResource{Resource: "configmaps"}}, list)
		answer(w, r, list)
	}))
	return func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(apirequest.WithRequestInfo(r.Context(), listRequest())))
		return w
	}
}
