// Package attacks tries every published class of attack on HTTP/1.1 and HTTP/2 against a real front door, with an innocent
// client beside it.
//
//	go test ./e2e/attacks                                      a reduced set, as the checks of a release do
//	go test ./e2e/attacks -timeout 1h -args -whole -write      all, on both engines; writes docs/attacks.{md,json}
//
// The front door is a process of its own, so that the kernel tells its CPU time and memory. The attacker is another: this test
// binary again, which sends frames by hand and is the hostile extension server too. A class is a line in classes_test.go;
// attacks on the server are in server_*_test.go, attacks of extension servers on our client in backend_*_test.go.
package attacks
