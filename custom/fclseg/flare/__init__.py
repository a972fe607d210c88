"""The only package that imports NVFlare: controller, executor, learner, filters and site state."""
