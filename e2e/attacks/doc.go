// Package attacks tests a real front door against every published class of attack on HTTP/1.1 and HTTP/2, while a
// bystander sends normal requests.
//
//	go test ./e2e/attacks                                      a reduced set, as in the release checks
//	go test ./e2e/attacks -timeout 1h -args -whole -write      all, on both engines; writes README.md and results.json.zst
//
// The front door is a separate process, so that the kernel reports its CPU time and memory. The attacker is another instance of
// this test binary, which sends handwritten frames and is also the hostile extension server. A class is a line in
// classes_test.go. Attacks on the server are in server_*_test.go, attacks of extension servers on the front door's client in
// backend_*_test.go.
package attacks
