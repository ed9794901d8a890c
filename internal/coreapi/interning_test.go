package coreapi

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"

	"portico.dev/internal/coreapi/kinds/cluster"
)

func managed(by, fields string) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{
		Manager: by, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", Subresource: "status",
		FieldsV1: metav1.NewFieldsV1(fields), Time: new(metav1.Unix(1_700_000_000, 0)),
	}, {Manager: "nothing else"}}
}

func bindingNumber(n int) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "of-a-team-with-a-long-name", Name: fmt.Sprint("b-", n),
			ManagedFields: managed("operator-of-the-platform", `{"f:roleRef":{},"f:subjects":{},"f:metadata":{"f:labels":{".":{},"f:team":{}}}}`),
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit-but-not-secrets"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: fmt.Sprint("u-", n)}},
	}
}

// both returns the interning codec of a version and the codec that it wraps.
func both(t *testing.T, gv schema.GroupVersion) (shared interningCodec, plain kruntime.Codec) {
	t.Helper()
	c, err := newCodecs(cluster.All())
	if err != nil {
		t.Fatal(err)
	}
	shared, ok := c.storage(gv).(interningCodec)
	if !ok {
		t.Fatalf("storage(%s) is not an interningCodec, want one", gv)
	}
	return shared, shared.Codec
}

func TestInterningDecoderReturnsEqualObjects(t *testing.T) {
	for name, c := range map[string]struct {
		gv  schema.GroupVersion
		obj kruntime.Object
	}{
		"a binding":      {rbacv1.SchemeGroupVersion, bindingNumber(1)},
		"another one":    {rbacv1.SchemeGroupVersion, bindingNumber(2)},
		"of the cluster": {rbacv1.SchemeGroupVersion, &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "n", Name: "s"}}}},
		"without fields": {corev1.SchemeGroupVersion, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: managed("m", "")}}},
		"with very many": {corev1.SchemeGroupVersion, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: managed("m", strings.Repeat("x", 2*maxInternedBytes))}}},
		"with maps": {corev1.SchemeGroupVersion, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: "c", CreationTimestamp: metav1.Unix(1_700_000_000, 0), ManagedFields: managed("m", "{}"),
				Labels: map[string]string{"a": "b", "c": ""}, Annotations: map[string]string{"b": "a"},
			},
			Data: map[string]string{"": "d"},
		}},
		"with nothing": {corev1.SchemeGroupVersion, &corev1.ConfigMap{}},
	} {
		t.Run(name, func(t *testing.T) {
			shared, plain := both(t, c.gv)
			data, err := kruntime.Encode(plain, c.obj)
			if err != nil {
				t.Fatal(err)
			}
			want, err := kruntime.Decode(plain, data)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // in the second round all words are known
				got, err := kruntime.Decode(shared, data)
				if err != nil {
					t.Fatal(err)
				}
				if !apiequality.Semantic.DeepEqual(got, want) {
					t.Errorf("decoded object = %+v\nwant %+v", got, want)
				}
			}
		})
	}
}

// Only events and lists, which are not modified, share maps. An object decoded for an update has private maps.
func TestOnlyReadOnlyObjectsShareMaps(t *testing.T) {
	shared, plain := both(t, corev1.SchemeGroupVersion)
	for { // until each of the maps below has a distinct slot
		places := map[any]bool{}
		for _, v := range []string{"x", "y"} {
			for _, m := range []map[string]string{{"of": "all", "and": v}, {"for": v}, {"key": v}} {
				places[shared.maps.place(m)] = true
			}
		}
		if len(places) == 6 {
			break
		}
		shared.maps = newInternedMaps()
	}
	stored := func(name, value string) []byte {
		data, err := kruntime.Encode(plain, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, CreationTimestamp: metav1.Unix(1_700_000_000, 0), ManagedFields: managed("m", "{}"),
				Labels: map[string]string{"of": "all", "and": value}, Annotations: map[string]string{"for": value},
			},
			Data: map[string]string{"key": value},
		})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	event := func(data []byte) *corev1.ConfigMap {
		obj, err := kruntime.Decode(shared, data)
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*corev1.ConfigMap)
	}
	decoder := sharingDecoder{etcd3.NewDefaultDecoder(shared, storage.APIObjectVersioner{}), shared}
	item := func(data []byte) *corev1.ConfigMap {
		obj, err := decoder.DecodeListItem(t.Context(), data, 7, func() kruntime.Object { return &corev1.ConfigMap{} })
		if err != nil {
			t.Fatal(err)
		}
		if m := obj.(*corev1.ConfigMap); m.ResourceVersion != "7" {
			t.Errorf("resourceVersion of the decoded object = %q, want 7", m.ResourceVersion)
		}
		return obj.(*corev1.ConfigMap)
	}
	changed := func(data []byte) *corev1.ConfigMap {
		into := &corev1.ConfigMap{}
		if err := decoder.Decode(data, into, 7); err != nil {
			t.Fatal(err)
		}
		return into
	}
	one := event(stored("one", "x"))
	large := strings.Repeat("x", maxInternedMapBytes)
	for name, c := range map[string]struct {
		a, b *corev1.ConfigMap
		same bool
	}{
		"events":                {one, event(stored("two", "x")), true},
		"an event and a list":   {one, item(stored("three", "x")), true},
		"another value":         {one, event(stored("four", "y")), false},
		"what is to be changed": {one, changed(stored("five", "x")), false},
		"large maps":            {event(stored("six", large)), event(stored("seven", large)), false},
	} {
		for field, pair := range map[string][2]map[string]string{
			"labels": {c.a.Labels, c.b.Labels}, "annotations": {c.a.Annotations, c.b.Annotations}, "data": {c.a.Data, c.b.Data},
		} {
			if same := reflect.ValueOf(pair[0]).Pointer() == reflect.ValueOf(pair[1]).Pointer(); same != c.same {
				t.Errorf("%s: %s share one map = %v, want %v", name, field, same, c.same)
			}
		}
	}
	if e := one.ManagedFields[0]; e.Time != &one.CreationTimestamp {
		t.Error("the time of the managed fields is a copy of creationTimestamp, want the same pointer")
	}
	if own := changed(stored("one", "x")); own.ManagedFields[0].Time == &own.CreationTimestamp {
		t.Error("an object decoded for an update shares the time of its creation, want a copy")
	}
}

func TestInternKeepsDifferentMapsDistinct(t *testing.T) {
	s := newInternedMaps()
	for i := range 10 * len(s.known) { // more than the table holds
		m := map[string]string{fmt.Sprint(i): "", "": fmt.Sprint(i)}
		for range 2 { // known in the second round
			if got := s.intern(maps.Clone(m)); !maps.Equal(got, m) {
				t.Fatalf("intern(%v) = %v, want equal maps", m, got)
			}
		}
	}
	if got := s.intern(nil); got != nil {
		t.Errorf("intern(nil) = %v, want nil", got)
	}
}

func TestInternKeepsDifferentFieldSetsDistinct(t *testing.T) {
	s := newInternedFields()
	for i := range 10 * len(s.known) { // more than the table holds
		f := metav1.NewFieldsV1(fmt.Sprint("{", i, "}"))
		if got := s.intern(f); got != f {
			t.Fatalf("intern of new fields %s = %s, want the argument", f, got)
		}
		if got := s.intern(metav1.NewFieldsV1(f.GetRawString())); got != f {
			t.Fatalf("intern of equal fields = %s, want the known %s", got, f)
		}
	}
	large := strings.Repeat("x", maxInternedBytes+1)
	if f, g := metav1.NewFieldsV1(large), metav1.NewFieldsV1(large); s.intern(f) != f || s.intern(g) != g {
		t.Errorf("intern kept fields of more than %d bytes, want the argument returned", maxInternedBytes)
	}
}

// Many bindings that differ in name and user use at most half of the objects and three quarters of the memory.
func TestInterningHalvesObjectsOfManyBindings(t *testing.T) {
	shared, plain := both(t, rbacv1.SchemeGroupVersion)
	const many = 3000
	kept := func(c kruntime.Codec) (objects, bytes uint64) {
		stored := make([][]byte, many)
		for i := range stored {
			data, err := kruntime.Encode(plain, bindingNumber(i))
			if err != nil {
				t.Fatal(err)
			}
			stored[i] = data
		}
		before, decoded := heapNow(), make([]kruntime.Object, many)
		for i := range stored {
			obj, err := kruntime.Decode(c, stored[i])
			if err != nil {
				t.Fatal(err)
			}
			decoded[i] = obj
		}
		after := heapNow()
		runtime.KeepAlive(decoded)
		runtime.KeepAlive(stored)
		return after.HeapObjects - before.HeapObjects, after.HeapAlloc - before.HeapAlloc
	}
	for try := 1; ; try++ { // garbage of other tests varies between rounds, memory that is not shared is there each time
		objects, bytes := kept(plain)
		fewer, less := kept(shared)
		t.Logf("%d objects of %d bytes, frugally %d of %d", objects/many, bytes/many, fewer/many, less/many)
		if 2*fewer <= objects && 4*less <= 3*bytes {
			break
		}
		if try == 5 {
			t.Errorf("with sharing: %d objects and %d bytes, without: %d and %d, want at most half of the objects and three quarters of the bytes", fewer, less, objects, bytes)
			break
		}
	}
}

func heapNow() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC() // sweeps the garbage that the first collection found
	runtime.ReadMemStats(&m)
	return m
}
