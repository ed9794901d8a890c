package doctor

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const discoveryPath = "/apis/" + group + "/" + served

// extensionServer has the extension server's handler for each kind of request.
type extensionServer struct {
	// gate precedes all handlers: authentication and authorization.
	gate                            func(http.HandlerFunc) http.HandlerFunc
	discovery, openAPI, list, watch http.HandlerFunc
}

func (s extensionServer) handler() http.Handler {
	return s.gate(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == discoveryPath:
			s.discovery(w, r)
		case strings.HasPrefix(r.URL.Path, "/openapi/"):
			s.openAPI(w, r)
		case r.URL.Query().Get("watch") != "":
			s.watch(w, r)
		default:
			s.list(w, r)
		}
	})
}

// working is an extension server that is well.
func working() extensionServer {
	return extensionServer{
		gate: func(next http.HandlerFunc) http.HandlerFunc { return next },
		discovery: answering(http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group + "/" + served,
			APIResources: []metav1.APIResource{{Name: "orders", Namespaced: true, Kind: "Order", Verbs: metav1.Verbs{"get", "list", "watch"}}},
		}),
		openAPI: answering(http.StatusOK, map[string]any{"openapi": "3.0.0", "paths": map[string]any{discoveryPath + "/orders": map[string]any{}}}),
		list:    answering(http.StatusOK, map[string]any{"kind": "OrderList", "apiVersion": group + "/" + served, "metadata": map[string]any{"resourceVersion": "7"}, "items": []any{}}),
		watch: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"Order","apiVersion":"%s/%s","metadata":{"resourceVersion":"7","annotations":{%q:"true"}}}}`,
					group, served, metav1.InitialEventsAnnotationKey)
			}
			slowHandler(w, r)
		},
	}
}

// slowHandler keeps a response open until the client disconnects.
func slowHandler(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// silent takes requests and never answers.
func silent(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler) // an empty response could still arrive
}

func answering(code int, body any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func withVerdict(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// refusing is a Status as delegated authentication and authorization give it.
func refusing(code int, reason metav1.StatusReason, message string) http.HandlerFunc {
	return answering(code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message,
	})
}

// always puts one answer before everything else.
func always(answer http.HandlerFunc) func(http.HandlerFunc) http.HandlerFunc {
	return func(http.HandlerFunc) http.HandlerFunc { return answer }
}

// unlessAdmin answers every request with the handler, except requests of users that extension servers allow without a review.
func unlessAdmin(answer http.HandlerFunc) func(http.HandlerFunc) http.HandlerFunc {
	return func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-Remote-User") {
			case "admin", "system:kube-aggregator", "": // "" is the front door's verdict in a world, which names nobody
				next(w, r)
			default:
				answer(w, r)
			}
		}
	}
}
