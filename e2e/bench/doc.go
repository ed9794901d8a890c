// Command bench measures what requests cost through the front door, beside the same requests without it.
//
//	go run ./e2e/bench                 all of it, under ten minutes: docs/bench/{proxied,scale,local}.{md,json}
//	go run ./e2e/bench -quick          a minute or two, to see whether everything works; writes to a temporary directory
//	go run ./e2e/bench proxied         one of them; objects, backends, memory and load only this way
//	go run ./e2e/bench -kube-apiserver FILE -kube-controller-manager FILE
//	                                   a real one beside the front door, under ten minutes: docs/bench/incumbent.{md,json}
//
// Each of the three is a package; environment has the servers and the clients, measure the statistics.
// Another benchmark, of discovery, is the command in discovery.
package main
