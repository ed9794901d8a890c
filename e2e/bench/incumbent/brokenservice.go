package incumbent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/e2e/environment"
	"portico.dev/internal/tools/drill/faulty"
)

// FaultRow contains the results of one side while a backend was dead.
type FaultRow struct {
	Fault string `json:"fault"`
	Who   string `json:"side"`
	// Code and Reason belong to the response to a GET that was sent as soon as the backend was dead. Answered is its
	// duration.
	Code     int           `json:"code"`
	Reason   string        `json:"reason"`
	Answered time.Duration `json:"answeredNanoseconds"`
	// Unavailable is the time from the fault to Available=False, Available the time from the backend's return to
	// Available=True.
	Unavailable time.Duration `json:"unavailableNanoseconds"`
	Available   time.Duration `json:"availableNanoseconds"`
	// Deleted is the time from the deletion of a namespace, while the backend was dead, until it was gone. Waited is
	// true if it was gone only after the backend's return, and Returned is the time from that return.
	Deleted  time.Duration `json:"namespaceDeletedNanoseconds"`
	Waited   bool          `json:"namespaceWaited"`
	Returned time.Duration `json:"namespaceAfterReturnNanoseconds"`
}

// brokenService is a side with a backend that dies.
type brokenService struct {
	*environment.FrontDoor
	fault
	backend *faulty.Server
	row     FaultRow
	// end stops the side, leave stops the backend
	end, leave func() error
}

const (
	faultyService = "faulty"
	doomed        = "doomed"
	// waitLimit bounds every wait that depends on a dead backend.
	waitLimit = 2 * time.Minute
	// lookAgain is the polling interval for a namespace.
	lookAgain = 100 * time.Millisecond
)

func nothing() error { return nil }

// patients starts both sides for a fault.
func (g *rig) patients(ctx context.Context, f fault) ([]*brokenService, error) {
	g.say("starting both sides for a fault: %s", f.name)
	ours, theirs, _, err := g.sides(ctx, fmt.Sprintf("fault-%d", len(g.started.ours)))
	if err != nil {
		return nil, err
	}
	both := []*brokenService{
		{FrontDoor: ours.FrontDoor, fault: f, end: ours.Stop, leave: nothing, row: FaultRow{Fault: f.name, Who: oursName}},
		{FrontDoor: theirs.FrontDoor, fault: f, end: theirs.Stop, leave: nothing, row: FaultRow{Fault: f.name, Who: kubernetesName}},
	}
	for _, p := range both {
		if err := p.admit(ctx); err != nil {
			return both, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return both, nil
}

// admit starts the backend, registers it, and creates the namespace that will be deleted.
func (p *brokenService) admit(ctx context.Context) (err error) {
	p.backend, err = faulty.New(faulty.Config{
		Group: environment.GroupOf(faultyService), ServerName: faultyService + "." + environment.Namespace + ".svc", Address: "127.0.0.1:0", Stores: p.stores,
	})
	if err != nil {
		return err
	}
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.backend.Run(living) }()
	p.leave = func() error { stop(); return <-ended }
	select {
	case <-p.backend.Ready():
	case err := <-ended:
		ended <- err // for leave
		return err
	}
	if err := p.RegisterAt(ctx, faultyService, p.backend.Port(), p.backend.CABundle()); err != nil {
		return err
	}
	if err := p.until(ctx, apiregistrationv1.ConditionTrue); err != nil {
		return err
	}
	if _, err := p.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = p.Client.CoreV1().ConfigMaps(doomed).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	if err != nil || !p.stores {
		return err
	}
	return p.createWidget(ctx)
}

func (p *brokenService) collection(ns string) string {
	resource := "readings"
	if p.stores {
		resource = "widgets"
	}
	return "/apis/" + environment.GroupOf(faultyService) + "/v1/namespaces/" + ns + "/" + resource
}

func (p *brokenService) createWidget(ctx context.Context) error {
	widget := `{"apiVersion":"` + environment.GroupOf(faultyService) + `/v1","kind":"Widget","metadata":{"name":"kept","namespace":"` + doomed + `"}}`
	return p.Client.Discovery().RESTClient().Post().AbsPath(p.collection(doomed)).SetHeader("Content-Type", "application/json").Body([]byte(widget)).Do(ctx).Error()
}

// suffer makes the backend die and return, and measures the effects.
func (p *brokenService) suffer(ctx context.Context, g *rig) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*waitLimit, fmt.Errorf("it is not over within %s", 2*waitLimit))
	defer cancel()
	client, err := environment.NewClient(p.Server, true)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	if _, _, err := p.get(ctx, client); err != nil { // opens the connections before the backend dies
		return err
	}
	began := time.Now()
	if err := p.begin(p.backend); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() {
		var err error
		p.row.Code, p.row.Reason, err = p.get(ctx, client)
		p.row.Answered = time.Since(began)
		answered <- err
	}()
	err = p.until(ctx, apiregistrationv1.ConditionFalse)
	p.row.Unavailable = time.Since(began)
	deleted := time.Now()
	if err == nil {
		err = p.deleteWhileDead(ctx, g.Dead)
	}
	if err := errors.Join(err, <-answered); err != nil {
		return err
	}
	return p.recover(ctx, deleted)
}

// deleteWhileDead deletes the namespace, and waits for its deletion for at most atMost.
func (p *brokenService) deleteWhileDead(ctx context.Context, atMost time.Duration) error {
	if err := p.Client.CoreV1().Namespaces().Delete(ctx, doomed, metav1.DeleteOptions{}); err != nil {
		return err
	}
	began := time.Now()
	gone, err := p.awaitDeletion(ctx, atMost)
	if gone {
		p.row.Deleted = time.Since(began)
	}
	p.row.Waited = !gone
	return err
}

func (p *brokenService) recover(ctx context.Context, deleted time.Time) error {
	returned := time.Now()
	if err := p.backend.SetFault(faulty.Healthy); err != nil {
		return err
	}
	if err := p.until(ctx, apiregistrationv1.ConditionTrue); err != nil {
		return err
	}
	p.row.Available = time.Since(returned)
	if !p.row.Waited {
		return nil
	}
	gone, err := p.awaitDeletion(ctx, waitLimit)
	if err == nil && !gone {
		err = fmt.Errorf("the namespace has not gone %s after its backend returned", waitLimit)
	}
	p.row.Deleted, p.row.Returned = time.Since(deleted), time.Since(returned)
	return err
}

// get sends a request to the backend, and waits for the response for at most waitLimit.
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
		return resp.StatusCode, "", nil // some errors are plain text
	}
	return resp.StatusCode, string(status.Reason), nil
}

// awaitDeletion waits for the deletion of the namespace and reports whether it happened in time.
func (p *brokenService) awaitDeletion(ctx context.Context, atMost time.Duration) (bool, error) {
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

// until watches the APIService until its condition Available has the wanted status.
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
