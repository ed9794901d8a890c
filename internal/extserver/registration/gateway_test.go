package registration

import (
	"encoding/json"
	"testing"

	"portico.dev/internal/gateway/adoption"
)

// A server that maintains its registration stays behind its gateway and reports a new authority to the gateway.
func TestAdoptedAPIServiceStaysBehindGateway(t *testing.T) {
	if originalService != adoption.OriginalServiceAnnotation || originalCABundle != adoption.OriginalCABundleAnnotation {
		t.Fatalf("annotations %q and %q differ from package adoption, want equal names", originalService, originalCABundle)
	}
	want := Manifest{
		"kind": "APIService", "metadata": map[string]any{"name": "v1.a", "labels": map[string]any{"x": "y"}},
		"spec": map[string]any{
			"group": "a", "caBundle": "TkVX", "insecureSkipTLSVerify": false,
			"service": map[string]any{"namespace": "ns", "name": "server", "port": 4443},
		},
	}
	object := func(service string, annotations ...string) []byte {
		o := map[string]any{"spec": map[string]any{"service": map[string]any{"namespace": "ns", "name": service}}}
		if len(annotations) > 0 {
			o["metadata"] = map[string]any{"annotations": map[string]any{originalService: annotations[0], originalCABundle: "T0xE"}}
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, tt := range map[string]struct {
		object  []byte
		adopted bool
	}{
		"adopted":                   {object("gateway", "ns/server:4443"), true},
		"prepared":                  {object("server", "ns/server:4443"), false},
		"changed by somebody":       {object("other"), false},
		"not adopted":               {object("server"), false},
		"an object that is garbage": {[]byte("garbage"), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := behindGateway(tt.object, want)
			spec := got["spec"].(map[string]any)
			_, leads := spec["service"]
			if leads == tt.adopted {
				t.Fatalf("APIService names a Service: %t, want the opposite of adopted = %t; object: %v", leads, tt.adopted, got)
			}
			if !tt.adopted {
				return
			}
			meta := got["metadata"].(map[string]any)
			annotations := meta["annotations"].(map[string]any)
			if annotations[originalService] != "ns/server:4443" || annotations[originalCABundle] != "TkVX" || meta["name"] != "v1.a" || spec["group"] != "a" || spec["caBundle"] != nil {
				t.Errorf("applied APIService = %v, want the original Service and CA bundle in its annotations", got)
			}
			if _, changed := want["spec"].(map[string]any)["service"]; !changed {
				t.Error("registration lacks its Service after the APIService was adapted, want it unchanged")
			}
		})
	}
}
