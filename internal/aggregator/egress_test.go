package aggregator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/aggregation"
	"portico.dev/internal/transport"
)

// The tunnel to the control plane also carries calls to webhooks with URLs. The address checks are the same as without a
// tunnel.
func TestURLWebhooksUseTheControlPlaneTunnel(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked := make(chan string, 10)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				asked <- r.Host
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\n")
			}
			_ = conn.Close()
		}
	}()
	file := filepath.Join(dir, "egress.yaml")
	text := fmt.Sprintf("apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: controlplane\n"+
		"  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}\n", listener.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	base, err := aggregation.NewBase(aggregation.Serving{EgressSelectorConfigFile: file}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	h := &parts{Base: base}
	if h.Egress.Cluster() != nil {
		t.Error("Egress.Cluster is set, want nil without a cluster tunnel in the file")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dial := h.webhookDialer()
	conn, err := dial(ctx, "tcp", "hooks.example:443")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	var forbidden *transport.ForbiddenAddressError
	if _, err := dial(ctx, "tcp", "169.254.169.254:80"); !errors.As(err, &forbidden) {
		t.Errorf("dial of a metadata service = %v, want a ForbiddenAddressError", err)
	}
	_ = listener.Close()
	<-served
	close(asked)
	var all []string
	for address := range asked {
		all = append(all, address)
	}
	if fmt.Sprint(all) != "[hooks.example:443]" {
		t.Errorf("addresses that the tunnel received = %v, want [hooks.example:443]", all)
	}
}
