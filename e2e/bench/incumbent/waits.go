package incumbent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/e2e/bench/environment"
)

// get asks the backend for something, and waits for as long as it takes.
func (p *brokenService) get(ctx context.Context, client *http.Client) (code int, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	r, err := environment.NewRequest(ctx, p.Server, environment.Ask{Method: http.MethodGet, Path: p.collection(environment.Namespace), Token: environment.AdminToken}, "")
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, "", err
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) != nil || status.Kind != "Status" {
		return resp.StatusCode, "", nil // some refuse in plain text
	}
	return resp.StatusCode, string(status.Reason), nil
}

// gone waits for the namespace to go.
func (p *brokenService) gone(ctx context.Context, atMost time.Duration) (bool, error) {
	for until := time.Now().Add(atMost); time.Now().Before(until); {
		_, err := p.Client.CoreV1().Namespaces().Get(ctx, doomed, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, err
		}
		if err := environment.Pause(ctx, lookAgain); err != nil {
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// until watches the APIService until its condition Available is as wanted.
func (p *brokenService) until(ctx context.Context, wanted apiregistrationv1.ConditionStatus) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("condition Available is not %s within %s", wanted, waitLimit))
	defer cancel()
	services := p.APIService.ApiregistrationV1().APIServices()
	name := "v1." + environment.GroupOf(faultyService)
	w, err := services.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		a, ok := event.Object.(*apiregistrationv1.APIService)
		if !ok {
			return fmt.Errorf("a watch of APIServices said %v", event.Object)
		}
		for _, c := range a.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status == wanted {
				return nil
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the watch of APIService %s ended", name)
}
