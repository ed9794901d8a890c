package registration

import (
	"encoding/json"
	"maps"
	"net"
)

// The annotations of an APIService behind a gateway (package adoption, of which extension servers link nothing).
const (
	originalService  = "gateway.portico.dev/original-service"
	originalCABundle = "gateway.portico.dev/original-ca-bundle"
)

// behindGateway returns what is to be applied to an object as it is now. An APIService that was put behind a gateway stays there: its spec
// leads to the gateway, and where this server is, and by which authority it is known, is in annotations.
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
		return o // it leads here still, or again
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

// serviceText is namespace/name:port.
func serviceText(service map[string]any) string {
	port, err := json.Marshal(service["port"])
	if err != nil {
		return ""
	}
	namespace, _ := service["namespace"].(string)
	name, _ := service["name"].(string)
	return namespace + "/" + net.JoinHostPort(name, string(port))
}
