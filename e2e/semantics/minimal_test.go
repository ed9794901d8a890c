package semantics

// sample is the least that a kind can be created from.
type sample struct {
	// text is YAML in which NAME stands for a name of the test's choice, and ADDRESS for an IP address that goes with it.
	text string
	// fixedName: the name follows from the content, so that none can be generated.
	fixedName bool
	// lingers: a deletion is the beginning of something that others have to end.
	lingers bool
	// namesItself: an object without a name is given one.
	namesItself bool
}

// minimal has one entry for each kind that the front door serves itself and that can be created and listed. A new kind
// is one more line here: TestEveryKind fails for a kind that has none.
var minimal = map[string]sample{
	"v1/configmaps":             {text: `{}`},
	"v1/endpoints":              {text: `{}`},
	"v1/events":                 {text: `{involvedObject: {kind: ConfigMap, name: a, namespace: every-kind}, reason: Test}`},
	"v1/limitranges":            {text: `{spec: {limits: []}}`, namesItself: true},
	"v1/namespaces":             {text: `{}`, lingers: true},
	"v1/nodes":                  {text: `{}`},
	"v1/persistentvolumes":      {text: `{spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /tmp/NAME}}}`},
	"v1/persistentvolumeclaims": {text: `{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`},
	"v1/pods":                   {text: `{spec: {containers: [{name: a, image: a}]}}`},
	"v1/podtemplates":           {text: `{template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}`},
	"v1/replicationcontrollers": {text: `{spec: {selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}`},
	"v1/resourcequotas":         {text: `{spec: {hard: {count/nothings.example.com: "5"}}}`},
	"v1/secrets":                {text: `{}`},
	"v1/serviceaccounts":        {text: `{}`},
	"v1/services":               {text: `{spec: {ports: [{port: 80}]}}`},

	"admissionregistration.k8s.io/v1/mutatingadmissionpolicies": {text: `{spec: {` + neverMatches + `, reinvocationPolicy: Never,
	  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "test", path: "/kind", value: "A"}]'}}]}}`},
	"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings":   {text: `{spec: {policyName: nobody}}`},
	"admissionregistration.k8s.io/v1/mutatingwebhookconfigurations":     {text: `{}`},
	"admissionregistration.k8s.io/v1/validatingadmissionpolicies":       {text: `{spec: {` + neverMatches + `, validations: [{expression: "true"}]}}`},
	"admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": {text: `{spec: {policyName: nobody, validationActions: [Deny]}}`},
	"admissionregistration.k8s.io/v1/validatingwebhookconfigurations":   {text: `{}`},

	"apiextensions.k8s.io/v1/customresourcedefinitions": {fixedName: true, lingers: true, text: `{metadata: {name: things.NAME.example.com}, spec: {
	  group: NAME.example.com, scope: Namespaced, names: {plural: things, singular: thing, kind: Thing},
	  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`},
	"apiregistration.k8s.io/v1/apiservices": {fixedName: true, text: `{metadata: {name: v1.NAME.example.com}, spec: {
	  group: NAME.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, service: {namespace: nowhere, name: none}}}`},

	"apps/v1/controllerrevisions": {text: `{revision: 1, data: {a: b}}`},
	"apps/v1/daemonsets":          {text: workload},
	"apps/v1/deployments":         {text: workload},
	"apps/v1/replicasets":         {text: workload},
	"apps/v1/statefulsets":        {text: workload},

	"autoscaling/v1/horizontalpodautoscalers": {text: `{spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}}`},
	"autoscaling/v2/horizontalpodautoscalers": {text: `{spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}}`},

	"batch/v1/cronjobs": {text: `{spec: {schedule: "0 0 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}}`},
	"batch/v1/jobs":     {text: `{spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}`},

	"certificates.k8s.io/v1/certificatesigningrequests": {text: `{spec: {signerName: example.com/NAME, usages: [digital signature], request: ` + signingRequest + `}}`},
	"certificates.k8s.io/v1/clustertrustbundles":        {text: `{spec: {trustBundle: "` + authority + `"}}`},
	"certificates.k8s.io/v1/podcertificaterequests": {text: `{spec: {signerName: example.com/NAME, podName: a, podUID: a, serviceAccountName: a,
	  serviceAccountUID: a, nodeName: a, nodeUID: a, stubPKCS10Request: ` + proofOfKey + `}}`},

	"coordination.k8s.io/v1/leases":      {text: `{}`},
	"discovery.k8s.io/v1/endpointslices": {text: `{addressType: IPv4, endpoints: []}`},
	"events.k8s.io/v1/events": {text: `{eventTime: "2026-01-01T00:00:00.000000Z", action: Test, reason: Test, type: Normal,
	  reportingController: example.com/test, reportingInstance: test, regarding: {kind: ConfigMap, name: a, namespace: every-kind}}`},

	"flowcontrol.apiserver.k8s.io/v1/flowschemas":                 {text: `{spec: {priorityLevelConfiguration: {name: catch-all}, matchingPrecedence: 9999}}`},
	"flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations": {text: `{spec: {type: Limited, limited: {nominalConcurrencyShares: 1, limitResponse: {type: Reject}}}}`},

	"networking.k8s.io/v1/ingressclasses":  {text: `{spec: {controller: example.com/a}}`},
	"networking.k8s.io/v1/ingresses":       {text: `{spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}}`},
	"networking.k8s.io/v1/ipaddresses":     {fixedName: true, text: `{metadata: {name: ADDRESS}, spec: {parentRef: {resource: services, namespace: every-kind, name: NAME}}}`},
	"networking.k8s.io/v1/servicecidrs":    {text: `{spec: {cidrs: [10.99.0.0/24]}}`},
	"networking.k8s.io/v1/networkpolicies": {text: `{spec: {podSelector: {}}}`},

	"node.k8s.io/v1/runtimeclasses":        {text: `{handler: a}`},
	"policy/v1/poddisruptionbudgets":       {text: `{spec: {minAvailable: 1, selector: {matchLabels: {a: NAME}}}}`},
	"scheduling.k8s.io/v1/priorityclasses": {text: `{value: 1}`},

	"rbac.authorization.k8s.io/v1/clusterrolebindings": {text: `{roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}`},
	"rbac.authorization.k8s.io/v1/clusterroles":        {text: `{}`},
	"rbac.authorization.k8s.io/v1/rolebindings":        {text: `{roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}`},
	"rbac.authorization.k8s.io/v1/roles":               {text: `{}`},

	"storage.k8s.io/v1/csidrivers":              {text: `{spec: {}}`},
	"storage.k8s.io/v1/csinodes":                {text: `{spec: {drivers: []}}`},
	"storage.k8s.io/v1/csistoragecapacities":    {text: `{storageClassName: a}`},
	"storage.k8s.io/v1/storageclasses":          {text: `{provisioner: example.com/a}`},
	"storage.k8s.io/v1/volumeattachments":       {text: `{spec: {attacher: example.com, nodeName: a, source: {persistentVolumeName: a}}}`},
	"storage.k8s.io/v1/volumeattributesclasses": {text: `{driverName: example.com, parameters: {a: b}}`},

	"every.example.com/v1/boats": {text: `{spec: {crew: 1}}`},
	"every.example.com/v1/ports": {text: `{}`},
}

const (
	workload = `{spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}`

	neverMatches = `matchConstraints: {resourceRules: [{apiGroups: [nowhere.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}]}`
)

// definitions of the two custom resources that go through the same cycle as everybody else: one in namespaces with all
// the doors there are, and one without.
var definitions = []string{`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.every.example.com}
spec:
  group: every.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.crew}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {crew: {type: integer}}}
          status: {type: object, properties: {crew: {type: integer}}}
`, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ports.every.example.com}
spec:
  group: every.example.com
  scope: Cluster
  names: {plural: ports, singular: port, kind: Port}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`}

// signingRequest is a PEM certificate request for the name "semantics", in base64.
const signingRequest = "" +
	"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlITk1IWUNBUUF3RkRFU01CQUdBMVVFQXd3SmMyVnRZVzUwYVdO" +
	"ek1Ga3dFd1lIS29aSXpqMENBUVlJS29aSQp6ajBEQVFjRFFnQUVZWXhVdU8ySExXaHlCa04reitrZ1hpem85UUtyd3ZmcURPdXJy" +
	"dTlwUDErRm5VTHRqYXBQCm90dmtTVDBnQStyREVuUm9IQlNnSWtscmNpRXQ3Q2doOEtBQU1Bb0dDQ3FHU000OUJBTUNBMGNBTUVR" +
	"Q0lCUmkKRGlLcjBXVWQvNE9BbHRiMS9WdmVUUnl2djFRNEFHbDNBUXNBdU8vOEFpQVJxZ29JL1E2KzRDQmlxdy9rYWxzawpwTGRk" +
	"MUMrclFFNks4cE0xR1RwQWRRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="

// proofOfKey is a certificate request that says nothing but that its author has a key, in base64.
const proofOfKey = "" +
	"MIG7MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAwE2DgNaUeVG2I/OS0g7KQ9BR8uogEVP71eKvZ1Ur2dZJ8Sb/qrUEza" +
	"dpp7znNKN1MsrTwWbywrU2t6dGNW0r2gADAKBggqhkjOPQQDAgNJADBGAiEA0JZqbmtGlpUOmXalzN2FWEf8GooPCxAjKIKL6rrofT8C" +
	"IQD1sh8U36oYiSvXol7Q07KT0dHiP0KjLRz3MxiilrlGoA=="

// authority is a self-signed certificate until 2120, in PEM with its line feeds as YAML writes them.
const authority = "" +
	"-----BEGIN CERTIFICATE-----\\nMIIBWzCCAQGgAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDEwlzZW1hbnRp\\nY3MwIBc" +
	"NMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMT\\nCXNlbWFudGljczBZMBMGByqGSM49AgEGCCqGSM49AwEH" +
	"A0IABAwE2DgNaUeVG2I/\\nOS0g7KQ9BR8uogEVP71eKvZ1Ur2dZJ8Sb/qrUEzadpp7znNKN1MsrTwWbywrU2t6\\ndGNW0r2jQjBAMA" +
	"4GA1UdDwEB/wQEAwICBDAPBgNVHRMBAf8EBTADAQH/MB0GA1Ud\\nDgQWBBTGGBtpcV5EOFYX3TamFmyTtSaC0DAKBggqhkjOPQQDAgN" +
	"IADBFAiEAul/P\\nGSxTx4dABmeETCeaqsIU3p7SqxQEfzqPweOOPXACIC5lArIpGJrM5AZNs0GXxp8Q\\nbeyZ4BRbMMzynUkeXvq6" +
	"\\n-----END CERTIFICATE-----\\n"
