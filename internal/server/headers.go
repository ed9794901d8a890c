package server

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
)

// maxGoawayChance is upstream's bound: above it clients would spend their time on handshakes.
const maxGoawayChance = 0.02

// goawayFilter asks a few HTTP/2 clients to connect again, so that they spread over replicas behind a load balancer
// that balances connections only. What is on the connection is finished first.
func goawayFilter(chance float64) (func(http.Handler) http.Handler, error) {
	if chance < 0 || chance > maxGoawayChance {
		return nil, fmt.Errorf("goaway chance %g is not between 0 and %g", chance, maxGoawayChance)
	}
	return func(next http.Handler) http.Handler {
		if chance == 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && rand.Float64() < chance {
				w.Header().Set("Connection", "close")
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

var hstsDirective = regexp.MustCompile(`^(max-age=\d{1,10}|includeSubDomains|preload)$`)

// hstsFilter tells browsers to come back by TLS alone (RFC 6797).
func hstsFilter(directives []string) (func(http.Handler) http.Handler, error) {
	age := false
	for _, d := range directives {
		if !hstsDirective.MatchString(d) {
			return nil, fmt.Errorf("strict transport security directive %q is none of max-age=SECONDS, includeSubDomains, preload", d)
		}
		age = age || strings.HasPrefix(d, "max-age=")
	}
	if len(directives) > 0 && !age {
		return nil, fmt.Errorf("strict transport security needs max-age=SECONDS beside %s", strings.Join(directives, ", "))
	}
	value := strings.Join(directives, "; ")
	return func(next http.Handler) http.Handler {
		if value == "" {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Strict-Transport-Security", value)
			next.ServeHTTP(w, r)
		})
	}, nil
}
