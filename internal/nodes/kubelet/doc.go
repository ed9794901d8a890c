// Package kubelet forwards client requests to kubelets, to pods and to the pods behind Services: logs, exec, attach,
// portforward and proxy, with the behavior of kube-apiserver.
//
// # Trust
//
// A client names a pod, a node or a Service, never an address. The address of a kubelet comes from the Node's status,
// and the address of a pod from the Pod's status. Nodes write both, and nodes are trusted less than this server.
// Therefore each address passes the dial guard of package transport after resolution, and no proxied request reaches
// loopback, link-local or multicast addresses. Logs, exec, attach and portforward may use a kubelet on loopback, as
// in kube-apiserver: a kubelet on this machine may have no other address.
//
// A kubelet authenticates with a certificate from --kubelet-certificate-authority for the dialled address. Without
// that flag its certificate is not verified, as in kube-apiserver. Pods are not verified, because their certificates
// are unknown.
//
// # Guarantees to kubelets and pods
//
// Requests carry no credentials, cookies or identity headers of the client. A kubelet authenticates this server by
// its client certificate and authorizes that identity. The authorization of the client happened before. Paths to
// kubelets consist of validated names. The rest of a proxied path is the client's, byte for byte, after
// request.CheckTarget has rejected dot segments and control bytes in any encoding.
//
// # Guarantees to clients
//
// If a server does not respond, the client receives a Status with code 503 that contains the node, its address, the
// failed step, and the time of the first failure. Upgrades are relayed byte for byte if the kubelet supports them.
// For a kubelet that does not declare support for websockets, kubectl's websocket is translated to SPDY with the code
// of kube-apiserver.
package kubelet
