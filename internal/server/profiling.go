package server

import (
	"net/http"
	"net/http/pprof"

	"github.com/gorilla/mux"
)

// profiles serves what kube-apiserver serves below /debug/pprof, to whoever the chain lets get it. None of it is listed at
// the root, as there. The command line is not served: flags may name files that are nobody's business.
func profiles(m *mux.Router) {
	m.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	m.HandleFunc("/debug/pprof/profile", pprof.Profile)
	m.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("/debug/pprof/trace", pprof.Trace)
	m.PathPrefix("/debug/pprof/").HandlerFunc(pprof.Index)
}
