package deploy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The API server's own code compiles and evaluates the policies, for the oldest
// version of Kubernetes that the chart takes.
var oldest = environment.MustBaseEnvSet(version.MustParseGeneric("1.31"))

// policy is a ValidatingAdmissionPolicy of the chart, ready to be asked.
type policy struct {
	spec      admissionv1.ValidatingAdmissionPolicySpec
	validator validating.Validator
}

// change is what an API server asks its policies about.
type change struct {
	resource, subresource string
	old, new              *unstructured.Unstructured
	namespace             *corev1.Namespace
	params                runtime.Object
}

func compile(t *testing.T, files map[string]string, name string) policy {
	t.Helper()
	p := object[admissionv1.ValidatingAdmissionPolicy](t, files, "ValidatingAdmissionPolicy", release+"-"+name)
	declarations := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	compiler, err := cel.NewCompositedCompiler(oldest)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range p.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declarations, environment.NewExpressions)
		if result.Error != nil {
			t.Fatalf("%s: variable %s: %v", name, v.Name, result.Error)
		}
	}
	var conditions, expressions, messages []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		expressions = append(expressions, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	evaluator := func(of []cel.ExpressionAccessor) cel.ConditionEvaluator {
		e := compiler.CompileCondition(of, declarations, environment.NewExpressions)
		for _, err := range e.CompilationErrors() {
			t.Fatalf("%s: %v", name, err)
		}
		return e
	}
	// Match conditions see no variables, which the API server's compiler would let pass here.
	matcher := matchconditions.NewMatcher(evaluator(conditions), p.Spec.FailurePolicy, "policy", "validate", name)
	return policy{p.Spec, validating.NewValidator(evaluator(expressions), matcher, evaluator(nil), evaluator(messages), p.Spec.FailurePolicy, nil)}
}

// asked reports whether the API server would ask the policy.
func (p policy) asked(c change) bool {
	gv := c.new.GroupVersionKind().GroupVersion()
	operation := admissionv1.Create
	if c.old != nil {
		operation = admissionv1.Update
	}
	resource := strings.TrimSuffix(c.resource+"/"+c.subresource, "/")
	for _, r := range p.spec.MatchConstraints.ResourceRules {
		if contains(r.APIGroups, gv.Group) && contains(r.APIVersions, gv.Version) && contains(r.Resources, resource) && contains(r.Operations, operation) {
			return true
		}
	}
	return false
}

func contains[T comparable](list []T, v T) bool {
	return slices.Contains(list, v)
}

// decide returns the texts with which the policy refuses a change.
func (p policy) decide(t *testing.T, c change) []string {
	t.Helper()
	if !p.asked(c) {
		return nil
	}
	kind := c.new.GroupVersionKind()
	gvr := kind.GroupVersion().WithResource(c.resource)
	operation := admission.Create
	var old runtime.Object
	if c.old != nil {
		operation, old = admission.Update, c.old
	}
	attributes := admission.NewAttributesRecord(c.new, old, kind, c.new.GetNamespace(), c.new.GetName(), gvr, c.subresource, operation, nil, false, nil)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind}
	versioned.VersionedObject.Set(c.new)
	if c.old != nil {
		versioned.VersionedOldObject.Set(c.old)
	}
	var refused []string
	result := p.validator.Validate(t.Context(), gvr, versioned, c.params, c.namespace, celconfig.RuntimeCELCostBudget, nil)
	for _, d := range result.Decisions {
		if d.Evaluation == validating.EvalError {
			t.Errorf("%s %s: the policy fails: %s", c.resource, c.new.GetName(), d.Message)
		}
		if d.Action == validating.ActionDeny {
			refused = append(refused, d.Message)
		}
	}
	return refused
}

// versions of COSI that the policies know.
var versions = []string{"v1alpha1", "v1alpha2"}

// driverName is the chart's default.
const driverName = "contract.cosi.example.com"

// class is a class with fields at the top or in spec, as its version has them.
func class(version, kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if version == "v1alpha1" {
		maps.Copy(o.Object, fields)
	} else {
		o.Object["spec"] = fields
	}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "objectstorage.k8s.io", Version: version, Kind: kind})
	o.SetName(name)
	return o
}

// thing is an object with a spec, in either version.
func thing(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := class("v1alpha2", kind, name, spec)
	o.SetAPIVersion("objectstorage.k8s.io/" + version)
	return o
}

func inNamespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}
