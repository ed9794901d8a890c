package extserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	labelInterval = time.Minute
	labelTimeout  = 10 * time.Second
	// maxNodeBytes bounds the answer: etcd keeps no larger object.
	maxNodeBytes = 2 << 20
)

// nodeLabels follows the labels of the Node object that describes this machine, so that clients can select its
// metrics by them. A front door without that Node, or one that does not let us read it, costs the labels and no more.
type nodeLabels struct {
	http   *http.Client
	url    string
	log    *zap.Logger
	labels atomic.Pointer[map[string]string]
}

func newNodeLabels(client *rest.Config, node string, log *zap.Logger) (*nodeLabels, error) {
	c, err := rest.HTTPClientFor(client)
	if err != nil {
		return nil, fmt.Errorf("client of the front door: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(client)
	if err != nil {
		return nil, fmt.Errorf("address of the front door: %w", err)
	}
	own := *c // the library shares clients between those who ask with the same configuration
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &nodeLabels{http: &own, url: base.JoinPath("api", "v1", "nodes", url.PathEscape(node)).String(), log: log}, nil
}

// Get is the labels as last read, nil before that.
func (n *nodeLabels) Get() map[string]string {
	if l := n.labels.Load(); l != nil {
		return *l
	}
	return nil
}

// Run reads the labels again and again until ctx ends.
func (n *nodeLabels) Run(ctx context.Context) error {
	defer n.http.CloseIdleConnections()
	tick := time.NewTicker(labelInterval)
	defer tick.Stop()
	for {
		labels, err := n.read(ctx)
		if err != nil {
			n.log.Debug("labels of the node", zap.Error(err))
		} else {
			n.labels.Store(&labels)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (n *nodeLabels) read(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	answer, err := n.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxNodeBytes))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the front door answered %d", answer.StatusCode)
	}
	var node metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &node); err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	return node.Labels, nil
}
