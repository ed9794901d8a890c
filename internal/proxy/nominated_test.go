package proxy

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
)

func TestA58NominatedFieldsAreRemoved(t *testing.T) {
	for name, c := range map[string]struct{ header, want http.Header }{
		"no Connection":             {http.Header{"Accept": {"a"}}, http.Header{"Accept": {"a"}}},
		"close":                     {http.Header{"Accept": {"a"}, "Connection": {"close"}}, http.Header{"Accept": {"a"}, "Connection": {"close"}}},
		"an upgrade":                {http.Header{"Upgrade": {"x"}, "Connection": {"Upgrade"}}, http.Header{"Upgrade": {"x"}, "Connection": {"Upgrade"}}},
		"an end-to-end field":       {http.Header{"Accept": {"a"}, "Connection": {"accept"}}, http.Header{}},
		"a field and an option":     {http.Header{"Accept": {"a"}, "Te": {"trailers"}, "Connection": {"TE , Accept", "close"}}, http.Header{"Te": {"trailers"}, "Connection": {"TE, close"}}},
		"a field that is set later": {http.Header{"X-A": {"a"}, "Connection": {"Accept"}}, http.Header{"X-A": {"a"}}},
		"Connection itself":         {http.Header{"X-A": {"a"}, "Connection": {"connection"}}, http.Header{"X-A": {"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header = c.header.Clone()
			if got := WithoutNominated(r).Header; !reflect.DeepEqual(got, c.want) {
				t.Errorf("WithoutNominated(%v) = %v, want %v", c.header, got, c.want)
			}
			if !reflect.DeepEqual(r.Header, c.header) {
				t.Errorf("header of the request after WithoutNominated = %v, want %v", r.Header, c.header)
			}
		})
	}
}
