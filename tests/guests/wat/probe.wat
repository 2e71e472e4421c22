;; A probe of contract 0.1 by hand: no checks, no results. Tests put more of everything at the two
;; places marked TOP and CHECKS.
(component
  (core module $empty)
  ;; TOP

  (core module $m
    (memory (export "memory") 1)
    (table $t 1 funcref)
    ;; Lowered arguments land at 1024; nothing reads them.
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    ;; Both return the empty list that the eight zero bytes at 0 are.
    (func (export "checks") (result i32)
      ;; CHECKS
      (i32.const 0))
    (func (export "run") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))

  (type $plan (record
    (field "model" string)
    (field "checks" (list string))
    (field "budget-ms" u32)
    (field "extras" (list (tuple string string)))))
  (type $outcome (variant
    (case "passed") (case "failed" string) (case "not-applicable" string)))
  (type $check (record
    (field "id" string)
    (field "capability" (option string))
    (field "outcome" $outcome)
    (field "evidence" string)))
  (func $checks (result (list string))
    (canon lift (core func $i "checks") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (func $run (param "plan" $plan) (result (list $check))
    (canon lift (core func $i "run") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))

  ;; Types at an edge need names; this inner component gives them theirs.
  (component $named
    (type $plan' (record
      (field "model" string)
      (field "checks" (list string))
      (field "budget-ms" u32)
      (field "extras" (list (tuple string string)))))
    (import "a-plan" (type $plan (eq $plan')))
    (type $outcome' (variant
      (case "passed") (case "failed" string) (case "not-applicable" string)))
    (import "a-outcome" (type $outcome (eq $outcome')))
    (type $check' (record
      (field "id" string)
      (field "capability" (option string))
      (field "outcome" $outcome)
      (field "evidence" string)))
    (import "a-check" (type $check (eq $check')))
    (import "a-checks" (func $checks (result (list string))))
    (import "a-run" (func $run (param "plan" $plan) (result (list $check))))
    (export $plan-out "plan" (type $plan'))
    (export $outcome-out "outcome" (type $outcome'))
    (type $check'' (record
      (field "id" string)
      (field "capability" (option string))
      (field "outcome" $outcome-out)
      (field "evidence" string)))
    (export $check-out "check" (type $check''))
    (export "checks" (func $checks))
    (export "run" (func $run) (func (param "plan" $plan-out) (result (list $check-out)))))

  (instance $probing (instantiate $named
    (with "a-plan" (type $plan))
    (with "a-outcome" (type $outcome))
    (with "a-check" (type $check))
    (with "a-checks" (func $checks))
    (with "a-run" (func $run))))
  (export "gristmill:contract/probing@0.1.0" (instance $probing)))
