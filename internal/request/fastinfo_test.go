package request

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// FuzzFastInfo checks that fastInfo returns the same attributes as k8s.io/apiserver.
func FuzzFastInfo(f *testing.F) {
	for _, path := range []string{
		"/", "/api", "/api/v1", "/api/v1/", "/apis/g/v1", "/apis/g/v1/things", "/api/v1/pods/p/log", "/api/v1/pods/p/log/x/y",
		"/api/v1/namespaces", "/api/v1/namespaces/n", "/api/v1/namespaces/n/status", "/api/v1/namespaces/n/finalize/x",
		"/api/v1/namespaces/n/pods", "/api/v1/namespaces/n/pods/p/status", "/apis/g/v1/namespaces/n/things/t/proxy/a/b",
		"/api/v1/watch/pods", "/api/v1/proxy/pods/p", "/api/v1/watch", "/api//pods/p", "//api/v1/pods", "/apis/g/v1/pods//x",
		"/healthz/etcd/x", "/apiss/g/v1/x", "/api/v1/a/b/c/d/e/f/g/h", "/api/v1/namespaces//pods",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", ""} {
			for _, query := range []string{
				"", "watch=1", "fieldSelector=metadata.name%3Dx&labelSelector=a", "limit=x", "limit=500&resourceVersion=0", "watch=true&timeoutSeconds=x",
				"allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=400&watch=true", "watch=0&watch=1", "watch=", "watch", "watch=TRUE", "watch=2",
				"watch=false&limit=", "w%61tch=1", "watch=1;limit=2", "limit=1;watch=1", "&watch=1", "watch=1&", "continue=%zz&watch=1", "watch=1&fieldSelector=a",
			} {
				f.Add(method, path, query)
			}
		}
	}
	s := NewResolver()
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r := &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}}
		got := fastInfo(r)
		if got == nil {
			return
		}
		want, err := s.factory.NewRequestInfo(r)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("fastInfo(%s %q) = %+v, want %+v as in k8s.io/apiserver (error %v)", method, path, got, want, err)
		}
	})
}

// Frequent paths are parsed by fastInfo.
func TestFrequentPathsUseFastInfo(t *testing.T) {
	for target, method := range map[string]string{
		"/api/v1/namespaces/n/pods/p": "GET", "/apis/g/v1/things": "GET", "/apis/g/v1/namespaces/n/things": "POST", "/api/v1/pods": "DELETE",
		"/api/v1/pods?limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan": "GET", "/api/v1/pods?limit=500&continue=abc%3D": "GET",
		"/apis/g/v1/things?allowWatchBookmarks=true&resourceVersion=1&sendInitialEvents=true&timeout=10s&timeoutSeconds=400&watch=true": "GET",
	} {
		path, query, _ := strings.Cut(target, "?")
		if fastInfo(&http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}}) == nil {
			t.Errorf("fastInfo(%s %s) = nil, want attributes", method, target)
		}
	}
}

// FuzzOrdinary checks that a path without a detailed check would have passed it.
func FuzzOrdinary(f *testing.F) {
	for _, path := range []string{"/api/v1", "/a/./b", "/a/../b", "/a//b", "/.", "/a.b/c", "/a/", "/a%2e", "/a..b", "/..a"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		path = "/" + path
		if !ordinary(path) {
			return
		}
		for segment := range strings.SplitSeq(path[1:], "/") {
			if err := checkSegment(segment); err != nil {
				t.Errorf("checkSegment of the ordinary path %q = %v, want no error", path, err)
			}
		}
	})
}
