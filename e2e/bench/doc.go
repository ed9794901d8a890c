// Command bench compares the cost of requests through the front door with the cost of the same requests without it.
//
//	go run ./e2e/bench                 the default benchmarks, under ten minutes: e2e/bench/results/{proxied,scale,local}.{md,json.zst}
//	go run ./e2e/bench -quick          a minute or two, only to test the benchmarks; writes to a temporary directory
//	go run ./e2e/bench proxied         one benchmark; required for objects, clusters, growth, locks, backends, memory and load
//	go run ./e2e/bench -kube-apiserver FILE -kube-controller-manager FILE
//	                                   comparison with kube-apiserver, under ten minutes: e2e/bench/results/incumbent.{md,json.zst}
//
// Each benchmark is a package. Package environment contains the servers and the clients, package measure the
// statistics. The benchmark of discovery is a separate command, in the directory discovery.
package main
