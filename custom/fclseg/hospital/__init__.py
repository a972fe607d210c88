"""What a hospital allows and what leaves it: policy, approval, gate, protections, budget and audit."""
