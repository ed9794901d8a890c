package registration

import (
	"encoding/json"
	"maps"
	"net"
)

// Annotations of an APIService behind a gateway. They are defined in package adoption, which extension servers do not link.
const (
	originalService  = "gateway.portico.dev/original-service"
	originalCABundle = "gateway.portico.dev/original-ca-bundle"
)

// behindGateway returns the manifest to apply to an existing object. If an APIService was put behind a gateway, its spec
// still refers to the gateway, and annotations contain the Service and the caBundle of this server.
func behindGateway(object []byte, o Manifest) Manifest {
	var have struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			Service struct{ Namespace, Name string }
		}
	}
	spec, ok := o["spec"].(map[string]any)
	if o.text("kind") != "APIService" || !ok || json.Unmarshal(object, &have) != nil || have.Metadata.Annotations[originalService] == "" {
		return o
	}
	service, ok := spec["service"].(map[string]any)
	if !ok || have.Spec.Service.Namespace == service["namespace"] && have.Spec.Service.Name == service["name"] {
		return o // it refers to this server
	}
	annotations := map[string]any{originalService: serviceText(service)}
	if bundle, ok := spec["caBundle"].(string); ok {
		annotations[originalCABundle] = bundle
	}
	out, meta := maps.Clone(o), map[string]any{}
	if m, ok := o["metadata"].(map[string]any); ok {
		maps.Copy(meta, m)
		if own, ok := m["annotations"].(map[string]any); ok {
			maps.Copy(annotations, own)
		}
	}
	meta["annotations"] = annotations
	left := maps.Clone(spec)
	for _, field := range []string{"service", "caBundle", "insecureSkipTLSVerify"} {
		delete(left, field)
	}
	out["metadata"], out["spec"] = meta, left
	return out
}

// serviceText returns namespace/name:port.
func serviceText(service map[string]any) string {
	port, err := json.Marshal(service["port"])
	if err != nil {
		return ""
	}
	namespace, _ := service["namespace"].(string)
	name, _ := service["name"].(string)
	return namespace + "/" + net.JoinHostPort(name, string(port))
}
