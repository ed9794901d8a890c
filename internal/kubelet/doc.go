// Package kubelet sends the requests of clients to kubelets, to pods and to the pods behind Services: logs, exec, attach, portforward
// and proxy, as kube-apiserver does.
//
// # What is trusted
//
// A client names a pod, a node or a Service, never an address. The address of a kubelet is what the Node's status says, that of a pod
// what the Pod's status says; both are written by nodes, which are trusted less than this server. So each address passes the dial guard
// of package transport after resolution, and no proxied request reaches loopback, link-local or multicast addresses. Logs, exec, attach
// and portforward may go to a kubelet on loopback, as in kube-apiserver: a kubelet on this machine may have no other address.
//
// A kubelet proves who it is by a certificate of --kubelet-certificate-authority for the address that is dialled. Without that flag its
// certificate is not verified, as in kube-apiserver. Pods are not verified: nobody knows their certificates.
//
// # What is promised to kubelets and pods
//
// Requests carry no credential, no cookie and no identity header of the client. A kubelet knows this server by its client certificate,
// and authorises that; whether the client may do what it asks was decided before. Paths to kubelets are made of names that were
// validated. The rest of a proxied path is the client's, byte for byte, after request.CheckTarget has rejected dot segments and control
// bytes in any encoding.
//
// # What is promised to clients
//
// A server that does not answer is named in a Status of code 503: which node, at which address, at which step the request failed, and
// since when. Upgrades are relayed byte for byte when the kubelet takes them; a websocket of kubectl becomes SPDY for a kubelet that does not
// declare that it takes websockets, by the library of kube-apiserver.
package kubelet
