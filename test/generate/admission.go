package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// admission writes the table as a template of the chart: admission policies in
// CEL, so that the API server refuses a class that the driver would refuse, when
// it is applied and with the driver's own text. The driver's name is the chart's
// to say. Three texts differ from the driver's. An unknown key is answered with
// all known ones and not with the nearest, several unknown keys come in any
// order, and what is wrong inside a policy document only the driver tells.
func admission() string {
	var b strings.Builder
	b.WriteString("{{- /* Written by `make generate` from the table in pkg/params; edit that. */ -}}\n")
	b.WriteString("{{- if .Values.admission.enabled }}\n")
	b.WriteString(collectGuards)
	writePolicy(&b, params.BucketClass, "bucketclasses", []validation{{
		"variables.broken.size() == 0",
		"'contract ' + variables.contractName + ' does not allow it: ' + variables.broken.join('; ')",
		"the contract's guard does not allow it",
	}, {
		"variables.class.deletionPolicy in ['Retain', 'Delete']",
		"'deletionPolicy: ' + strings.quote(variables.class.deletionPolicy) + ' is not one of Retain, Delete'",
		"deletionPolicy is not one of Retain, Delete",
	}})
	writePolicy(&b, params.BucketAccessClass, "bucketaccessclasses", []validation{{
		"variables.class.authenticationType == 'Key'",
		"'authenticationType: ' + strings.quote(variables.class.authenticationType) + ' is not supported by this driver; set authenticationType: Key'",
		"authenticationType is not Key",
	}})
	b.WriteString("{{- if .Capabilities.APIVersions.Has \"admissionregistration.k8s.io/v1/MutatingAdmissionPolicy\" }}\n")
	writeDefaults(&b, params.BucketClass, "bucketclasses")
	writeDefaults(&b, params.BucketAccessClass, "bucketaccessclasses")
	b.WriteString("{{- end }}\n{{- end }}\n")
	return b.String()
}

// validation is one that is not about parameters: what must hold, the text if
// it does not, and the text if that cannot be told.
type validation struct{ expression, message, fallback string }

// Parts of expressions that need no parameter. A class of v1alpha1 has its
// fields at the top, one of v1alpha2 in spec.
const (
	class      = "has(object.spec) ? object.spec : object"
	parameters = "has(variables.class.parameters) ? variables.class.parameters : {}"
	// An unchanged class is left alone, so that one from before the policy can
	// still get a label, and can be deleted.
	changed = "oldObject == null || (has(object.spec) ? object.spec != oldObject.spec : " +
		"object.driverName != oldObject.driverName || object.?parameters != oldObject.?parameters)"
	ours = "(has(object.spec) ? object.spec : object).driverName{{ include \"contract-cosi-driver.isOurs\" . }}"
)

func writePolicy(b *strings.Builder, of params.Class, resource string, also []validation) {
	name := "{{ include \"contract-cosi-driver.name\" . }}-" + resource
	writeHead(b, "ValidatingAdmissionPolicy", name)
	writeMatch(b, resource)
	b.WriteString("  variables:\n")
	variable(b, "class", class)
	variable(b, "parameters", parameters)
	parts := []string{"variables.missing"}
	var missing, known []string
	for _, p := range table(of) {
		known = append(known, p.Name)
		if p.Required {
			missing = append(missing, fmt.Sprintf("(%s ? [] : [%s])", given(p.Name), text(p.Name+" is missing: "+p.Text)))
		}
	}
	variable(b, "missing", strings.Join(append([]string{"[]"}, missing...), " + "))
	for _, p := range table(of) {
		writeParameter(b, p)
		parts = append(parts, "variables."+p.Name)
		if p.Needs != "" {
			parts = append(parts, fmt.Sprintf("(%s && !(%s) ? [%s] : [])", given(p.Name), given(p.Needs), text(p.Name+" needs "+p.Needs)))
		}
		for _, other := range p.Excludes {
			parts = append(parts, fmt.Sprintf("(%s && %s ? [%s] : [])", given(p.Name), given(other), text(p.Name+" and "+other+" exclude each other")))
		}
	}
	slices.Sort(known)
	variable(b, "unknown", fmt.Sprintf("variables.parameters.map(k, k).filter(k, !(k in %s)).map(k, %s + %s)",
		list(known), quote("k"), text(" is unknown; known are "+strings.Join(known, ", "))))
	variable(b, "faults", strings.Join(append(parts, "variables.unknown"), "\n+ "))
	if of == params.BucketClass {
		writeGuard(b)
	}
	b.WriteString("  validations:\n")
	for _, v := range append([]validation{{
		"variables.faults.size() == 0",
		text(string(of)+" parameters: ") + " + variables.faults.join('; ')",
		string(of) + " parameters: unknown or malformed",
	}}, also...) {
		fmt.Fprintf(b, "    - expression: %s\n      messageExpression: %s\n      message: %s\n      reason: Invalid\n",
			strconv.Quote(v.expression), strconv.Quote(v.message), strconv.Quote(v.fallback))
	}
	writeHead(b, "ValidatingAdmissionPolicyBinding", name)
	fmt.Fprintf(b, "  policyName: %s\n  validationActions: [Deny]\n", name)
}

// collectGuards is the part of the template that finds the guards of the
// contracts in the chart's values, as maps from the contract's name to a list.
// The name "" stands for a contract on demand. Where the chart does not hold
// the driver's configuration there are none, and the driver alone refuses.
const collectGuards = `{{- $listed := list }}{{- $guards := dict "parameters" (dict) "required" (dict) "regions" (dict) "refusePublic" (dict) "region" (dict) "contractRegion" (dict) }}
{{- $terms := .Values.config.contracts | default list }}
{{- with .Values.config.onDemand }}{{- $terms = append $terms (merge (dict "name" "") .) }}{{- end }}
{{- range $c := $terms }}
{{- $listed = append $listed $c.name }}
{{- range $rule := list "parameters" "regions" "required" }}
{{- $names := dig "guard" $rule list $c }}
{{- if eq $rule "required" }}{{- range $given, $_ := dig "defaults" "bucketClass" dict $c }}{{- $names = without $names $given }}{{- end }}{{- end }}
{{- if $names }}{{- $_ := set (get $guards $rule) $c.name $names }}{{- end }}
{{- end }}
{{- if dig "guard" "refusePublic" false $c }}{{- $_ := set (get $guards "refusePublic") $c.name (list "yes") }}{{- end }}
{{- with dig "defaults" "bucketClass" "region" "" $c }}{{- $_ := set (get $guards "region") $c.name (list .) }}{{- end }}
{{- with $c.region }}{{- $_ := set (get $guards "contractRegion") $c.name (list .) }}{{- end }}
{{- end }}
`

// writeGuard writes what the contracts' guards say of a class, in the words of
// params.Guard. Only the driver tells whether a policy document is public, what a
// contract's defaults open, and in which region a bucket is that neither the
// class nor the contract gives one.
func writeGuard(b *strings.Builder) {
	of := func(rule string) string {
		return "({{ get $guards " + strconv.Quote(rule) + " | toJson }})[?variables.contractName in variables.listed ? variables.contractName : ''].orValue([])"
	}
	var optional, absent, public []string // absent are those that may mean nothing
	instead := ""
	for _, p := range table(params.BucketClass) {
		if !p.Required {
			optional = append(optional, p.Name)
		}
		if literal(p) == "" {
			absent = append(absent, p.Name)
		}
		if p.Satisfies != "" {
			instead += fmt.Sprintf(" && !(k == %s && %s)", text(p.Satisfies), given(p.Name))
		}
		var meets []string
		for _, r := range p.Opens {
			met := "i.matches(" + text(r.Expression()) + ")"
			if r.Not {
				met = "!" + met
			}
			meets = append(meets, met)
		}
		if len(meets) > 0 {
			public = append(public, fmt.Sprintf("(%s && %s.exists(i, %s) ? [%s] : [])", given(p.Name), values(p), strings.Join(meets, " && "), text(p.Name)))
		}
	}
	slices.Sort(optional)
	slices.Sort(absent)
	variable(b, "contractName", "variables.parameters[?'contract'].orValue('')")
	variable(b, "listed", "{{ $listed | toJson }}")
	variable(b, "allowed", of("parameters"))
	variable(b, "other", fmt.Sprintf("variables.allowed.size() == 0 ? [] : %s.filter(k, k in variables.parameters && !(k in variables.allowed))", list(optional)))
	variable(b, "lacking", of("required")+fmt.Sprintf(".filter(k, k in %s && !(k in variables.parameters)%s)", list(absent), instead))
	variable(b, "public", "variables.faults.size() > 0 || "+of("refusePublic")+".size() == 0 ? []\n: "+strings.Join(public, "\n+ "))
	variable(b, "regions", of("regions"))
	variable(b, "classRegion", "'region' in variables.parameters ? [variables.parameters['region']] : "+of("region"))
	variable(b, "effectiveRegion", "variables.classRegion.size() > 0 ? variables.classRegion : "+of("contractRegion"))
	variable(b, "broken", strings.Join([]string{
		"(variables.other.size() > 0 ? ['guard.parameters: a BucketClass may not give ' + variables.other.join(', ')] : [])",
		"(variables.lacking.size() > 0 ? ['guard.required: the BucketClass has to give ' + variables.lacking.join(', ')] : [])",
		"(variables.public.size() > 0 ? ['guard.refusePublic: ' + variables.public.join(', ') + ' makes the bucket public'] : [])",
		"(variables.regions.size() > 0 && variables.effectiveRegion.exists(r, !(r in variables.regions)) ?\n" +
			"['guard.regions: ' + (variables.classRegion.size() > 0 ? strings.quote(variables.effectiveRegion[0]) : 'the class has no region, and the default, ' + strings.quote(variables.effectiveRegion[0]) + ',')\n" +
			"+ ' is not one of ' + variables.regions.join(', ')] : [])",
	}, "\n+ "))
}

func writeHead(b *strings.Builder, kind, name string) {
	fmt.Fprintf(b, `---
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata:
  name: %s
  labels: {{- include "contract-cosi-driver.labels" . | nindent 4 }}
spec:
`, kind, name)
}

func writeMatch(b *strings.Builder, resource string) {
	fmt.Fprintf(b, `  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [objectstorage.k8s.io]
        apiVersions: [v1alpha1, v1alpha2]
        operations: [CREATE, UPDATE]
        resources: [%s]
  matchConditions:
    - name: this-driver
      expression: %s
    - name: changed
      expression: %s
`, resource, quoteTemplate(ours), quoteTemplate(changed))
}

// quoteTemplate quotes what holds a template's braces, which no escape may touch.
func quoteTemplate(s string) string { return `"` + s + `"` }

func variable(b *strings.Builder, name, expression string) {
	fmt.Fprintf(b, "    - name: %s\n      expression: |-\n        %s\n", name, strings.ReplaceAll(expression, "\n", "\n        "))
}

// writeParameter writes the variable that lists the faults of one parameter.
func writeParameter(b *strings.Builder, p params.Parameter) {
	value := "variables.parameters[" + text(p.Name) + "]"
	texts := values(p)
	if p.Check.List {
		// One more than are allowed tells enough; what CEL may cost is bounded.
		variable(b, p.Name+"Items", fmt.Sprintf("%s ? %s.split(',', %d).map(i, i.trim()) : []", given(p.Name), value, p.Check.MaxItems+1))
	}
	// From the last to the first of what params looks at, each in the else of
	// the one before.
	faults := "[]"
	if p.Check.UniqueKeys {
		keys := texts + ".map(i, i.split('=')[0])"
		faults = fmt.Sprintf("%s.exists(k, %s.filter(o, o == k).size() > 1) ? ['a key is given twice'] : []", keys, keys)
	}
	if len(p.Check.Rules) > 0 {
		each := "''"
		for _, r := range slices.Backward(p.Check.Rules) {
			each = fmt.Sprintf("%s ? %s + %s : %s", broken(r), quote("i"), text(" "+r.Fault), each)
		}
		broken := fmt.Sprintf("%s.map(i, %s).filter(f, f != '')", texts, each)
		if faults == "[]" {
			faults = broken
		} else {
			faults = fmt.Sprintf("%s.size() > 0 ? %s\n: %s", broken, broken, faults)
		}
	}
	if n := p.Check.MaxItems; n > 0 {
		faults = fmt.Sprintf("%s.size() > %d ? ['more than %d items']\n: %s", texts, n, n, faults)
	}
	if of := p.Check.OneOf; len(of) > 0 {
		faults = fmt.Sprintf("!(%s in %s) ? %s.map(i, %s + %s)\n: %s", value, list(of), texts, quote("i"), text(" is not one of "+strings.Join(of, ", ")), faults)
	}
	if n := p.Check.MaxBytes; n > 0 {
		faults = fmt.Sprintf("bytes(%s).size() > %d ? [string(bytes(%s).size()) + ' bytes; at most %d are allowed']\n: %s", value, n, value, n, faults)
	}
	variable(b, p.Name, fmt.Sprintf("(!(%s) ? []\n: %s).map(f, %s + f)", given(p.Name), faults, text(p.Name+": ")))
}

func broken(r params.Rule) string {
	switch {
	case r.Address:
		return "!(isIP(i) || isCIDR(i))"
	case r.Not:
		return "i.matches(" + text(r.Expression()) + ")"
	}
	return "!i.matches(" + text(r.Expression()) + ")"
}

// writeDefaults writes the policy that puts literal defaults into a class, so
// that what it means can be read in it.
func writeDefaults(b *strings.Builder, of params.Class, resource string) {
	var defaults []string
	for _, p := range table(of) {
		if value := literal(p); value != "" {
			defaults = append(defaults, text(p.Name)+": "+text(value))
		}
	}
	name := "{{ include \"contract-cosi-driver.name\" . }}-" + resource + "-defaults"
	writeHead(b, "MutatingAdmissionPolicy", name)
	fmt.Fprintf(b, `  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
      - apiGroups: [objectstorage.k8s.io]
        apiVersions: [v1alpha1, v1alpha2]
        operations: [CREATE, UPDATE]
        resources: [%s]
  matchConditions:
    - name: this-driver
      expression: %s
  variables:
`, resource, quoteTemplate(ours))
	variable(b, "class", class)
	variable(b, "parameters", parameters)
	variable(b, "defaults", "{"+strings.Join(defaults, ", ")+"}")
	// What has been put in stays in when the file is replaced; nothing is put
	// into a class that is there already, which cannot be changed.
	variable(b, "wanted", "variables.defaults.map(k, k).filter(k, !(k in variables.parameters) && (oldObject == null ||\n"+
		"k in (has(oldObject.spec) ? oldObject.spec : oldObject).?parameters.orValue({})))")
	b.WriteString("  mutations:\n    - patchType: JSONPatch\n      jsonPatch:\n        expression: |-\n")
	for _, line := range []string{
		"(has(variables.class.parameters) || variables.wanted.size() == 0 ? [] : [JSONPatch{op: 'add',",
		"  path: has(object.spec) ? '/spec/parameters' : '/parameters', value: {}}])",
		"+ variables.wanted.map(k, JSONPatch{op: 'add',",
		"  path: (has(object.spec) ? '/spec/parameters/' : '/parameters/') + k, value: variables.defaults[k]})",
	} {
		b.WriteString("          " + line + "\n")
	}
	writeHead(b, "MutatingAdmissionPolicyBinding", name)
	fmt.Fprintf(b, "  policyName: %s\n", name)
}

// literal is the default as a class could give it; "" if it is none of the
// values there are.
func literal(p params.Parameter) string {
	if value := strings.Trim(p.Default, "`"); slices.Contains(p.Check.OneOf, value) {
		return value
	}
	return ""
}

func table(of params.Class) []params.Parameter {
	return slices.DeleteFunc(params.Table(), func(p params.Parameter) bool { return p.Class != of })
}

// values are the items of a list, or the one value.
func values(p params.Parameter) string {
	if p.Check.List {
		return "variables." + p.Name + "Items"
	}
	return "[variables.parameters[" + text(p.Name) + "]]"
}

func given(name string) string { return text(name) + " in variables.parameters" }

// quote is what params does with a value in a message.
func quote(v string) string {
	return fmt.Sprintf("strings.quote(%s.size() > %d ? %s.substring(0, %d) + '…' : %s)", v, params.Quoted, v, params.Quoted, v)
}

// text is a literal of CEL, which reads Go's.
func text(s string) string { return strconv.Quote(s) }

func list(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = text(t)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
