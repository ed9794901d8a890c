package extension

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// BenchmarkList5000 is a list of 5,000 items of a watchable resource: poll, diff, filter, encode. Two such lists run
// side by side, as under load.
func BenchmarkList5000(b *testing.B) {
	items := make([]thing, 5000)
	for i := range items {
		items[i] = thing{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("thing-%05d", i), Labels: map[string]string{"app": "bench"}}, Value: i}
	}
	list := ListFunc[thing](func(context.Context, Query) ([]thing, error) { return items, nil })
	s := newServed(Of(Definition[thing]{Group: "g", Version: "v1", Plural: "things", Kind: "Thing", PollInterval: time.Second}, list), newVersions(time.Now()))
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "g", APIVersion: "v1", Resource: "things"}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := httptest.NewRequest("GET", "/apis/g/v1/things", nil)
			r = r.WithContext(apirequest.WithUser(r.Context(), &user.DefaultInfo{Name: "alice"}))
			w := httptest.NewRecorder()
			if err := s.read(w, r, info); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
